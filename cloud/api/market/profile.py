"""Reads a verifier's step costs from the file that `nexus verifier serve --step-cost` keeps."""

import json
from pathlib import Path


def read_profile(path: Path) -> dict[int, int]:
    """Nanoseconds by tokens. Raises `ValueError` that says what is wrong with the file."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        profile = {int(tokens): round(seconds * 1e9) for tokens, seconds in table.items()}
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, AttributeError, TypeError):
        raise ValueError(
            f'{path} must be a JSON object of tokens to seconds, like {{"1": 0.021, "8": 0.022}}'
        ) from None
    if not profile or any(tokens < 1 or ns < 1 for tokens, ns in profile.items()):
        raise ValueError(f"{path} must hold at least one size, with positive times")
    return profile
