"""What a developer runs in a terminal: `nexus demo` and `nexus chat`."""
