"""The market: prices, which node is given a stream, what its tokens are worth, and how far it is trusted; its core is pure."""
