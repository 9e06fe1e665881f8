"""The send queue: order, bound, and which drafts it gives up."""

import asyncio

import pytest

from desktop.agent.outbox import Outbox
from shared.errors import LocalMisuse
from shared.wire.messages import Beat, Draft, Drain, Hold, HoldReason, NodeMessage


def draft(stream: str, epoch: int, pos: int) -> Draft:
    return Draft(stream=stream, epoch=epoch, pos=pos, tokens=(1, 2))


async def rest(box: Outbox) -> list[NodeMessage]:
    box.close()
    found = []
    while (message := await box.get()) is not None:
        found.append(message)
    return found


async def test_a_newer_epoch_replaces_older_drafts_of_its_stream_only() -> None:
    """What the new epoch makes stale is never sent."""
    box = Outbox()
    for message in (draft("a", 0, 0), draft("b", 0, 0), draft("a", 0, 2), draft("a", 1, 1)):
        box.put(message)
    assert await rest(box) == [draft("b", 0, 0), draft("a", 1, 1)]
    assert box.dropped_tokens == 4


async def test_a_newer_epoch_of_one_candidate_leaves_the_others_alone() -> None:
    """Each counts its epochs for itself."""
    box = Outbox()
    main, old, new = (
        Draft(stream="a", epoch=epoch, pos=0, tokens=(1, 2), candidate=candidate)
        for epoch, candidate in ((0, 0), (3, 1), (4, 1))
    )
    for message in (main, old, new):
        box.put(message)
    assert await rest(box) == [main, new]


async def test_a_full_queue_gives_up_its_oldest_draft_and_never_a_control_message() -> None:
    """A stuck socket costs drafts, not memory, and not the Hold."""
    box = Outbox(drafts_limit=2)
    box.put(Hold(reason=HoldReason.ENGINE_FAILED))
    for pos in range(5):
        box.put(draft("a", 0, pos))
    box.put(Drain())
    assert await rest(box) == [
        Hold(reason=HoldReason.ENGINE_FAILED),
        draft("a", 0, 3),
        draft("a", 0, 4),
        Drain(),
    ]
    assert box.dropped_tokens == 6


async def test_beats_do_not_pile_up() -> None:
    """Only the newest sign of life waits."""
    box = Outbox()
    for seq in range(3):
        box.put(Beat(seq=seq))
    assert await rest(box) == [Beat(seq=2)]


async def test_drafts_of_closed_streams_are_forgotten() -> None:
    """One stream's, or all."""
    box = Outbox()
    for stream in "abc":
        box.put(draft(stream, 0, 0))
    box.forget_stream("a")
    assert len(box) == 2
    box.forget_drafts()
    assert await rest(box) == []


async def test_the_reader_wakes_for_a_message_and_for_the_end() -> None:
    """No polling."""
    box = Outbox()
    reader = asyncio.create_task(box.get())
    await asyncio.sleep(0)
    box.put(Drain())
    assert await reader == Drain()
    reader = asyncio.create_task(box.get())
    await asyncio.sleep(0)
    box.close()
    assert await reader is None
    with pytest.raises(LocalMisuse):
        box.put(Drain())
