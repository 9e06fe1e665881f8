"""The gateway: OpenAI-compatible routes, the node WebSocket, and the broker that pairs nodes with streams."""
