"""Literal bytes of HTTP/1.1 responses, whole and in any pieces."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud.api.upstream.http1 import HEAD_LIMIT, LINE_LIMIT, Malformed, ResponseReader

CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\nB;name=x\r\n, \r\nworld\r\n\r\n0\r\nsome: trailer\r\n\r\n"
)
SIZED = b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\nConnection: keep-alive\r\n\r\nnot here\n"
TO_THE_END = b"HTTP/1.0 200 OK\r\nServer:  old \r\n\r\nas long as it lasts"


def read(reader: ResponseReader, *pieces: bytes) -> bytes:
    return b"".join(reader.feed(piece) for piece in pieces)


@pytest.mark.parametrize(
    ("text", "status", "body", "reusable"),
    [
        (CHUNKED, 200, b"hello, \r\nworld\r\n"[:16], True),
        (SIZED, 404, b"not here\n", True),
        (SIZED.replace(b"keep-alive", b"Close"), 404, b"not here\n", False),
        (TO_THE_END, 200, b"as long as it lasts", False),
        (b"HTTP/1.1 204\r\n\r\n", 204, b"", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, b"", True),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + SIZED, 404, b"not here\n", True),
    ],
)
@settings(max_examples=40)
@given(cuts=st.lists(st.integers(0, 200), max_size=8))
def test_any_pieces_give_the_same(text, status, body, reusable, cuts):
    """Head, body and end do not depend on how the bytes were cut."""
    reader = ResponseReader()
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    got = read(reader, *(text[a:b] for a, b in pairwise(places)))
    reader.eof()
    assert (reader.head.status, got, reader.done, reader.reusable) == (status, body, True, reusable)


@settings(max_examples=60)
@given(blocks=st.lists(st.binary(min_size=1, max_size=600), max_size=6), size=st.integers(1, 50))
def test_chunks_of_any_bytes(blocks, size):
    """What a server cuts into chunks comes back as it was, also byte by byte."""
    text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    text += b"".join(b"%x\r\n%b\r\n" % (len(block), block) for block in blocks) + b"0\r\n\r\n"
    reader = ResponseReader()
    got = read(reader, *(text[at : at + size] for at in range(0, len(text), size)))
    assert got == b"".join(blocks) and reader.done


def test_headers_are_names_in_lower_case_and_trimmed_values():
    """A list may stand in one line or in several."""
    reader = ResponseReader()
    reader.feed(b"HTTP/1.1 200 OK\r\nVary:\t A, b\r\nVARY: c \r\ncontent-length: 1\r\n\r\n")
    assert reader.head.headers[:2] == [(b"vary", b"A, b"), (b"vary", b"c")]
    assert reader.head.values(b"vary") == [b"a", b"b", b"c"]


START = b"HTTP/1.1 200 OK\r\n"
CHUNKS = START + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "text",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 99 No\r\n\r\n",
        START + b"no colon\r\n\r\n",
        START + b": no name\r\n\r\n",
        START + b"folded: a\r\n b\r\n\r\n",
        START + b"nul: a\0b\r\n\r\n",
        START + b"x: " + b"y" * HEAD_LIMIT + b"\r\n\r\n",
        START + b"x: " + b"y" * (HEAD_LIMIT + 10),
        START + b"content-length: 5, 6\r\n\r\n",
        START + b"content-length: -1\r\n\r\n",
        START + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n",
        START + b"transfer-encoding: gzip, chunked\r\n\r\n",
        START + b"content-length: 2\r\n\r\nabc",
        CHUNKS + b"0x5\r\nhello\r\n",
        CHUNKS + b"+5\r\nhello\r\n",
        CHUNKS + b"\r\n",
        CHUNKS + b"5\r\nhelloo\r\n",
        CHUNKS + b"5" * (LINE_LIMIT + 1),
        CHUNKS + b"0\r\n\r\nmore",
    ],
)
def test_what_is_no_response_is_refused(text):
    """Nothing is guessed."""
    with pytest.raises(Malformed):
        ResponseReader().feed(text)


@pytest.mark.parametrize("text", [b"", b"HTTP/1.1 200", CHUNKS + b"5\r\nhe", CHUNKS + b"5\r\nhello\r\n", SIZED[:-1]])
def test_an_end_in_the_middle_is_told(text):
    """A response that is cut off is not taken for a whole one."""
    reader = ResponseReader()
    reader.feed(text)
    with pytest.raises(Malformed):
        reader.eof()
