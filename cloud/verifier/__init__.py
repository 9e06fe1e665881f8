"""The verifier: a stock vLLM server with a plugin that checks drafts from outside in its own forward passes."""
