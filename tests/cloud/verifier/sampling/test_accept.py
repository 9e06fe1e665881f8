"""Acceptance: equal to the target's choice, or not."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from cloud.verifier.sampling.accept import REJECTED, accept


def with_choices(drafts: list[int]) -> st.SearchStrategy[tuple[list[int], list[int]]]:
    size = len(drafts) + 1
    return st.tuples(st.just(drafts), st.lists(st.integers(0, 2), min_size=size, max_size=size))


request_rows = st.lists(
    st.lists(st.integers(0, 2), max_size=5).flatmap(with_choices),
    min_size=1,
    max_size=6,
)


@given(request_rows)
def test_each_request_commits_the_agreeing_draft_and_one_token_of_the_target(
    requests: list[tuple[list[int], list[int]]],
) -> None:
    """Against a plain loop, for any mix of draft lengths in one batch."""
    chosen = torch.tensor([token for _, own in requests for token in own])
    drafted = torch.tensor([token for drafts, _ in requests for token in drafts], dtype=torch.int32)
    lengths = torch.tensor([len(drafts) for drafts, _ in requests])
    rows = accept(chosen, drafted, lengths).tolist()
    for (drafts, own), row in zip(requests, rows, strict=True):
        expected = []
        for position, token in enumerate(own):
            expected.append(token)
            if position >= len(drafts) or drafts[position] != token:
                break
        assert row == expected + [REJECTED] * (len(row) - len(expected))
