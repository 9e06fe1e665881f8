"""Which requests are let in, when, and in whose turn: limits of a key, capacity of the deployment, and money."""
