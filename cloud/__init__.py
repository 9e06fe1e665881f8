"""The hosted side: the gateway that developers talk to, and the verifier behind it."""
