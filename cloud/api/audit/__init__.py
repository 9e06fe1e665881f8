"""The audit log: who changed what and when, written together with the change and never altered."""
