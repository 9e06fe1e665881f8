"""Serves the WebSocket on which draft nodes connect."""
