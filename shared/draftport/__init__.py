"""The draft port: what verifier and gateway say to each other over ZeroMQ."""
