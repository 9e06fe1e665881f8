"""Counter-based Gumbel noise in (seed, position, token): the randomness that target and drafters share."""
