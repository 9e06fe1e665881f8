"""The model catalogue: names, sources, fetching, checking, and conversion to a folder that engines load."""
