"""The gateway's own OpenAPI document, made from its request models and response schemas, and the pages about it."""
