"""Server-sent events from bytes."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.terminal.sse import SseParser, StreamBroken

STREAM = (
    "\ufeffdata: one\n\n: comment\nevent: x\nid: 3\ndata:two\ndata: lines é\r\n\r\nretry: 5\rdata: three\r\rdata\n\n"
)
EVENTS = ["one", "two\nlines é", "three", ""]


@given(st.lists(st.integers(0, len(STREAM.encode()))))
def test_events_do_not_depend_on_how_the_bytes_are_split(cuts: list[int]) -> None:
    """Inside a line, a character, or between CR and LF."""
    data = STREAM.encode()
    edges = [0, *sorted(cuts), len(data)]
    parser = SseParser()
    found = [event for a, b in itertools.pairwise(edges) for event in parser.feed(data[a:b])]
    assert found == EVENTS


def test_an_event_is_given_only_when_it_is_complete() -> None:
    """The blank line ends it; what is cut off is never given."""
    parser = SseParser()
    assert parser.feed(b"data: a\n") == []
    assert parser.feed(b"\ndata: b") == ["a"]
    assert parser.feed(b"\n") == []


def test_line_separators_of_unicode_do_not_end_a_line() -> None:
    """JSON may hold U+2028 and U+0085 as they are."""
    assert SseParser().feed("data: a\u2028b\u0085c\n\n".encode()) == ["a\u2028b\u0085c"]


@pytest.mark.parametrize("chunk", [b"data: " + b"x" * 100, b"data: x\n" * 20])
def test_an_event_over_the_limit_is_refused(chunk: bytes) -> None:
    """As one long line and as many short ones."""
    with pytest.raises(StreamBroken, match="larger than 50"):
        SseParser(limit=50).feed(chunk)


def test_bytes_that_are_no_text_are_refused() -> None:
    """In words, not as a UnicodeDecodeError."""
    with pytest.raises(StreamBroken, match="UTF-8"):
        SseParser().feed(b"data: \xff\n\n")
