"""OpenAI's published answers, chunks, models and errors as JSON Schema, with the extensions that Nexus documents."""
