"""Carries the draft port's messages between the gateway and its verifiers over ZeroMQ."""
