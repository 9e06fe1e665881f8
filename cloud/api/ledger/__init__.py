"""The double-entry ledger: money set aside, settled, held and paid out, as balanced events that are never changed."""
