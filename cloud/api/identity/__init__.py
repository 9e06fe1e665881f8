"""Who is who: people's accounts and roles, sign-in and sessions, and pairing of nodes by device code."""
