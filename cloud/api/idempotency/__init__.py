"""Answers that may be asked for again: by an Idempotency-Key, or by a client that retries what it never received."""
