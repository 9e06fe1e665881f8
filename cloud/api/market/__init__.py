"""The market: prices, which node is given a stream, what tokens are worth, how far it is trusted; its core is pure."""
