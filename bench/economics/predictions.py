"""What was expected of a day from what a single verifier gains; written down after the first exploratory runs."""

LOAD_SAVING = {8: 0.36, 16: 0.35, 32: 0.33, 64: 0.28, 128: 0.19}
"""Saving against plain decoding by streams on a verifier, step costs of `table`."""
COLOCATED_SAVING = {16: -0.05, 32: 0.0, 64: 0.06, 128: 0.08}
"""Against the draft model on the verifier's own GPUs; negative = Nexus is dearer."""
SPEED_SAVING = {40: 0.45}
"""At equal speed of a stream, by tokens per second."""
GROSS_HOUR, NET_HOUR = (0.04, 0.06), (0.01, 0.02)
"""Dollars for a node-hour with nodes in plenty."""
LOSING_SHARE = 0.0
SCARCE = 0.0
"""Saving where all nodes are needed: the price rises to the value, and everything saved goes to the nodes."""
