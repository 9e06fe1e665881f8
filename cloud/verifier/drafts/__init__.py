"""What the verifier knows about drafts: tapes, holds and counts, without the engine."""
