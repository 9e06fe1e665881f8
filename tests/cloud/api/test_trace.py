"""The join of tokens, text and origins."""

from hypothesis import given
from hypothesis import strategies as st

from cloud.api.trace import TraceJoiner
from cloud.api.upstream.chunks import Token


def token(text: str, id_: int = 0) -> Token:
    return Token(id_, text, -1.0, ())


def test_tokens_wait_for_their_text():
    """Tokens run ahead of text that is held back for stop strings; they are told with the text."""
    joiner = TraceJoiner()
    joiner.feed("Hel", [token("Hel"), token("lo")])
    assert [t.text for t in joiner.take(["plain", "accepted"])] == ["Hel"]
    joiner.feed("lo", [])
    assert [(t.text, t.origin) for t in joiner.take(["plain", "accepted"])] == [("lo", "accepted")]


def test_token_cut_by_a_stop_string():
    """A token whose end was cut off brings only the visible part; a hidden one brings nothing."""
    joiner = TraceJoiner()
    joiner.feed("one tw", [token("one"), token(" two"), token("<eos>")])
    assert [t.text for t in joiner.take([], final=True)] == ["one", " tw", ""]


def test_special_token_in_the_middle():
    """A token that is not shown does not stop those behind it."""
    joiner = TraceJoiner()
    joiner.feed("ab", [token("a"), token("<tool>"), token("b")])
    assert [t.text for t in joiner.take([])] == ["a", "", "b"]


def test_unfinished_characters():
    """Bytes of an unfinished character have an empty spelling; the token that ends it brings the character."""
    joiner = TraceJoiner()
    joiner.feed("\U0001f600!", [token(""), token(""), token("\U0001f600"), token("!")])
    assert [t.text for t in joiner.take([])] == ["", "", "\U0001f600", "!"]


@given(
    st.text(max_size=40),
    st.lists(st.text(max_size=5), max_size=12),
    st.lists(st.integers(0, 12), max_size=4),
)
def test_texts_add_up_whatever_the_spellings(text, spellings, cuts):
    """All told texts are exactly the visible text, also when the spellings do not fit it at all."""
    joiner = TraceJoiner()
    told = []
    at = 0
    for cut in cuts:
        joiner.feed(text[at : at + cut], [token(s) for s in spellings[:2]])
        spellings = spellings[2:]
        at += cut
        told += joiner.take([])
    joiner.feed(text[at:], [*(token(s) for s in spellings), token("end")])
    told += joiner.take([], final=True)
    assert "".join(t.text for t in told) == text
