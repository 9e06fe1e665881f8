"""How many draft tokens a step checks for each stream, and whether it pays to wait for more: pure arithmetic."""
