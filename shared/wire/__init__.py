"""The node protocol: messages, their encoding, and the session of each end as a table, without any I/O."""
