"""Who is who: people's accounts and roles, sign-in, pairing of nodes by device code, and the audit log."""
