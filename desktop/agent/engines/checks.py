"""What every engine checks before a round, and reads from a model folder, in the same words."""

import json
from collections.abc import Sequence
from pathlib import Path

from shared.errors import EngineError


def check_round(tokens: Sequence[int], count: int, *, vocabulary: int, max_model_len: int) -> None:
    """Raise `EngineError` when no round can follow `tokens`."""
    if not tokens:
        raise EngineError("A draft needs at least one token to continue.")
    if count < 1:
        raise EngineError(f"A round of {count} tokens was asked for; it must be at least 1.")
    if len(tokens) >= max_model_len:
        raise EngineError(
            f"The stream has {len(tokens)} tokens and the draft engine holds {max_model_len}; "
            "nothing more can be drafted for it. Raise max_model_len to draft for longer streams."
        )
    if min(tokens) < 0 or max(tokens) >= vocabulary:
        bad = next(token for token in tokens if not 0 <= token < vocabulary)
        raise EngineError(f"Token id {bad} is outside the draft model's vocabulary of {vocabulary}.")


def check_streams(running: int, max_streams: int) -> None:
    """Raise `EngineError` when `running` streams leave no place for one more."""
    if running >= max_streams:
        raise EngineError(f"The draft engine already drafts for {max_streams} streams, its max_streams.")


def read_model_config(folder: str) -> dict[str, object]:
    """The model's config.json. Raises `EngineError` when `folder` holds no model."""
    path = Path(folder) / "config.json"
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise EngineError(f"{folder} holds no model: config.json is missing.") from None
    except (OSError, ValueError) as exc:
        raise EngineError(f"config.json in {folder} cannot be read: {exc}.") from exc
    if not isinstance(data, dict):
        raise EngineError(f"config.json in {folder} is no JSON object.")
    return data


def fit_model_len(config: dict[str, object], wanted: int) -> int:
    """`wanted`, or the length that the model was made for when that is less."""
    own = config.get("max_position_embeddings")
    return min(wanted, own) if isinstance(own, int) and own > 0 else wanted
