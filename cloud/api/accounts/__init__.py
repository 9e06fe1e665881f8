"""API keys, what each may do, what it has used, and what that costs."""
