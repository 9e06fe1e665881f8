"""The tray app and its window, a client of the agent."""
