"""Prompt lookup, the free baseline."""

from hypothesis import given
from hypothesis import strategies as st

from cloud.verifier.drafts.lookup import PromptLookup, agreement


def test_what_followed_before_is_guessed_again() -> None:
    """The most recent occurrence of the longest n-gram decides."""
    assert PromptLookup([1, 2, 3, 4, 1, 2, 5, 6, 1, 2]).guess(2) == [5, 6]


def test_nothing_is_guessed_without_a_precedent() -> None:
    """A new ending has no guess."""
    assert PromptLookup([1, 2, 3]).guess(4) == []


@given(st.lists(st.integers(0, 2), max_size=40), st.integers(0, 40))
def test_growing_token_by_token_or_at_once_guesses_the_same(tokens: list[int], cut: int) -> None:
    """The index does not depend on how tokens came in."""
    grown = PromptLookup(tokens[:cut])
    grown.extend(tokens[cut:])
    assert grown.guess(5) == PromptLookup(tokens).guess(5)


@given(st.lists(st.integers(0, 2), max_size=30))
def test_a_guess_continues_an_earlier_occurrence(tokens: list[int]) -> None:
    """Whatever is guessed stands in the tokens behind the same two-token ending."""
    guess = PromptLookup(tokens).guess(3)
    if guess:
        pairs = [i for i in range(2, len(tokens)) if tokens[i - 2 : i] == tokens[-2:]]
        assert any(tokens[i : i + len(guess)] == guess for i in pairs)


def test_agreement_counts_the_common_beginning() -> None:
    """Baseline tokens are those that would have been accepted."""
    assert agreement([1, 2, 3], [1, 2, 4]) == 2
    assert agreement([], [1]) == 0
    assert agreement([1, 2], [1, 2, 3]) == 2
