"""The side of a GPU owner: the agent that drafts, and the window that shows it."""
