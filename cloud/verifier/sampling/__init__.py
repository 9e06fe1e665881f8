"""Coupled sampling: the target's token as a function of logits, parameters, seed and position, and nothing else."""
