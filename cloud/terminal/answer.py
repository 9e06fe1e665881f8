"""What a streamed answer is made of, read from the chunks of any OpenAI-compatible gateway."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Traced:
    """The visible text of one token and where the token came from: accepted, corrected, bonus or plain."""

    text: str
    origin: str


@dataclass(frozen=True, slots=True)
class Figures:
    """The `nexus` object at the end of an answer; tokens unless said otherwise."""

    drafted: int
    accepted: int
    verify_steps: int
    tokens_per_step: float | None
    """Output tokens for each forward pass of the target model."""

    @property
    def acceptance(self) -> float | None:
        """Share of the drafted tokens that were accepted, 0 to 1."""
        return self.accepted / self.drafted if self.drafted else None


@dataclass(frozen=True, slots=True)
class Piece:
    """One chunk. `traced` spells the same text as `text`, but may come a chunk earlier or later."""

    text: str = ""
    traced: tuple[Traced, ...] = ()
    finish: str | None = None
    completion_tokens: int | None = None
    figures: Figures | None = None


def read_chunk(chunk: Mapping[str, Any]) -> Piece:
    """Raises `TypeError`, `KeyError` or `ValueError` (also their kin) when it is no chunk of a chat answer."""
    text, finish = "", None
    for choice in chunk["choices"]:
        text += (choice.get("delta") or {}).get("content") or ""
        finish = choice.get("finish_reason") or finish
    usage = chunk.get("usage") or {}
    nexus = chunk.get("nexus") or {}
    figures = _figures(nexus) if "verify_steps" in nexus else None
    # The last chunk repeats the whole trace; what is printed as it comes are the parts before.
    trace = [] if figures else nexus.get("trace") or []
    return Piece(
        text=text,
        traced=tuple(Traced(str(entry["text"]), str(entry["origin"])) for entry in trace),
        finish=finish,
        completion_tokens=usage.get("completion_tokens"),
        figures=figures,
    )


def _figures(nexus: Mapping[str, Any]) -> Figures:
    per_step = nexus.get("tokens_per_step")
    return Figures(
        drafted=int(nexus.get("drafted") or 0),
        accepted=int(nexus.get("accepted") or 0),
        verify_steps=int(nexus["verify_steps"]),
        tokens_per_step=None if per_step is None else float(per_step),
    )
