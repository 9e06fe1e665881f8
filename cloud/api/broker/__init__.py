"""Decides which node drafts for which stream: events in, commands out, no I/O and no clock."""
