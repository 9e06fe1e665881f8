"""Pure ASGI layers around every request: identity and errors, body limit, keys."""
