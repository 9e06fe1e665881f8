"""Runs other people's clients against the real gateway, each in an environment of its own."""
