"""Prompt lookup: the free drafter that every verifier has, and the baseline that a node must beat to be paid."""

from collections.abc import Sequence

WINDOW = 8192
"""Only so many of the prompt's last tokens are looked through: opening a stream must not stall the engine."""


class PromptLookup:
    """Guesses that what followed the last few tokens earlier follows them again.

    The last `longest`, else fewer, down to `shortest`, tokens are looked up among all earlier ones; the most recent
    occurrence wins (Saxena 2023, "Prompt lookup decoding"). Cost: O(longest - shortest + 1) per token.
    """

    def __init__(self, tokens: Sequence[int], *, shortest: int = 2, longest: int = 4) -> None:
        self._sizes = range(longest, shortest - 1, -1)
        self._tokens: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}
        """n-gram -> position behind its latest occurrence that something follows."""
        self.extend(tokens[-WINDOW:])

    def extend(self, tokens: Sequence[int]) -> None:
        """Takes in tokens that were committed."""
        for token in tokens:
            end = len(self._tokens)
            for size in self._sizes:
                if size <= end:
                    self._after[tuple(self._tokens[end - size : end])] = end
            self._tokens.append(token)

    def guess(self, limit: int) -> list[int]:
        """Up to `limit` tokens that may come next; empty if the end has not been seen before."""
        end = len(self._tokens)
        for size in self._sizes:
            if size <= end and (found := self._after.get(tuple(self._tokens[end - size :]))) is not None:
                return self._tokens[found : found + limit]
        return []


def agreement(guess: Sequence[int], tokens: Sequence[int]) -> int:
    """How many leading tokens agree."""
    for count, (left, right) in enumerate(zip(guess, tokens, strict=False)):
        if left != right:
            return count
    return min(len(guess), len(tokens))
