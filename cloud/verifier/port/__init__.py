"""The draft port's server end: a thread with a ZeroMQ socket, and the mailbox that the scheduler reads."""
