"""What waits between the verifier's connections and the reader: in order, merged, bounded."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.api.inbox import MERGE_AT, SIZE_LIMIT, Event, Inbox
from cloud.api.upstream.chunks import Delta, EventSplitter, Finish, Token, Usage

TOKEN = Token(1, "x", -0.5, ())


async def drain(inbox: Inbox, choices: int = 1) -> list[Event]:
    """All events until every choice has ended."""
    events = []
    while choices:
        events.append(await asyncio.wait_for(inbox.get(), 10))
        choices -= events[-1].piece is None
    return events


def text_of(events: list[Event], index: int = 0) -> str:
    return "".join(e.piece.text for e in events if e.index == index and isinstance(e.piece, Delta))


async def test_a_quick_reader_gets_every_piece_as_it_came():
    """Nothing is merged while little waits."""
    inbox = Inbox()
    for word in "abc":
        await inbox.put_all(0, [Delta(word)])
        assert (await inbox.get()).piece == Delta(word)


async def test_a_slow_reader_gets_merged_deltas():
    """Text, tokens and end are those of all pieces; of usage only the latest is told."""
    inbox = Inbox()
    for number in range(100):
        await inbox.put_all(0, [Delta(f"{number} ", (TOKEN,)), Usage(5, number, 0)])
    await inbox.put_all(0, [Delta("end", end=Finish("stop"))])
    await inbox.put(Event(0, None))
    events = await drain(inbox)
    assert len(events) <= MERGE_AT + 3
    assert text_of(events) == "".join(f"{number} " for number in range(100)) + "end"
    deltas = [e.piece for e in events if isinstance(e.piece, Delta)]
    assert sum(len(d.tokens) for d in deltas) == 100
    assert [d.end for d in deltas if d.end] == [Finish("stop")] and deltas[-1].end
    assert [e.piece for e in events if isinstance(e.piece, Usage)][-1].completion_tokens == 99


async def test_choices_do_not_mix():
    """Each keeps its own order."""
    inbox = Inbox()
    for number in range(60):
        for index in range(3):
            await inbox.put_all(index, [Delta(f"{index}:{number} ")])
    for index in range(3):
        await inbox.put(Event(index, None))
    events = await drain(inbox, choices=3)
    for index in range(3):
        assert text_of(events, index) == "".join(f"{index}:{number} " for number in range(60))


@pytest.mark.parametrize("pieces", [[Delta("x")], [Delta("y" * 5000)], [Delta("x"), Usage(1, 2, 0)]])
async def test_it_is_bounded(pieces):
    """A writer whose reader takes nothing waits, however small the pieces are; it goes on when there is room."""
    inbox = Inbox()
    written = 0

    async def write():
        nonlocal written
        while True:
            await inbox.put_all(0, pieces)
            written += 1
            if not written % 1000:
                await asyncio.sleep(0)

    writer = asyncio.create_task(write())
    try:
        before = -1
        while before != written:
            before = written
            await asyncio.sleep(0.02)
        assert written * len(pieces[0].text) <= SIZE_LIMIT + 5000
        assert written <= SIZE_LIMIT / 64 + MERGE_AT
        while written == before:
            await inbox.get()
            await asyncio.sleep(0)
    finally:
        writer.cancel()


async def test_a_cancelled_reader_loses_nothing():
    """As when its time limit comes first."""
    inbox = Inbox()
    reader = asyncio.create_task(inbox.get())
    await asyncio.sleep(0)
    reader.cancel()
    await inbox.put_all(0, [Delta("kept")])
    assert (await inbox.get()).piece == Delta("kept")


@given(
    events=st.lists(
        st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1), max_size=8
    ),
    ends=st.sampled_from([b"\n\n", b"\r\n\r\n"]),
    size=st.integers(1, 40),
)
def test_events_are_found_in_any_pieces(events, ends, size):
    """Also where a line separator of Unicode stands in the text, and a cut goes through a character or a line end."""
    text = b"".join(b"data: " + each.encode() + ends for each in events) + b": a comment" + ends
    splitter = EventSplitter()
    got = [data for at in range(0, len(text), size) for data in splitter.feed(text[at : at + size])]
    assert got == [each.encode().lstrip() for each in events]


async def test_alternatives_of_tokens_count_as_well():
    """With twenty for each token they are nearly all that waits."""
    inbox, put = Inbox(), 0
    piece = Delta("x" * 100, (Token(1, "x", -0.5, tuple((f"t{i}", -1.0) for i in range(20))),) * 100)

    async def write():
        nonlocal put
        while put * 100 * 20 * 64 < 2 * SIZE_LIMIT:
            await inbox.put_all(0, [piece])
            put += 1

    writer = asyncio.create_task(write())
    try:
        await asyncio.sleep(0)  # it runs until there is no room
        assert put and not writer.done()
    finally:
        writer.cancel()
