"""Requests and answers in the shape of OpenAI's published API."""
