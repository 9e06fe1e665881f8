"""What the cloud and the desktop have in common: protocol, models, errors, ids; it imports nothing of ours."""
