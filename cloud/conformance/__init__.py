"""Judges any server by OpenAI's published API, case by case, with a strict and a compatible verdict."""
