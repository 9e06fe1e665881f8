"""Answers and figures as a terminal shows them."""

import io

import pytest

from cloud.terminal.answer import Figures, Piece, Traced
from cloud.terminal.paint import AnswerPrinter, Painter, figures_line, figures_table, wants_colour

PIECES = [
    Piece(text="Pa"),
    Piece(text="ris is", traced=(Traced("Paris", "accepted"), Traced(" is", "corrected"))),
    Piece(text=" it", traced=(Traced(" it", "bonus"),)),
    Piece(text="."),
]
FIGURES = Figures(drafted=8, accepted=6, verify_steps=3, tokens_per_step=3.0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(pieces: list[Piece], *, colour: bool, traced: bool) -> str:
    out = io.StringIO()
    printer = AnswerPrinter(Painter(out, colour=colour), traced=traced)
    for piece in pieces:
        printer.feed(piece)
    printer.finish()
    return out.getvalue()


def test_tokens_have_the_colour_of_their_origin() -> None:
    """And text that no token claimed is printed at the end, plain."""
    expected = "\x1b[32mParis\x1b[0m\x1b[33m is\x1b[0m\x1b[36m it\x1b[0m.\n"
    assert printed(PIECES, colour=True, traced=True) == expected


@pytest.mark.parametrize("traced", [True, False])
def test_without_colour_the_answer_is_plain_text(traced: bool) -> None:
    """Whether its tokens are traced or not."""
    assert printed(PIECES, colour=False, traced=traced) == "Paris is it.\n"


def test_an_unknown_origin_is_printed_plainly() -> None:
    """A newer gateway may know more origins."""
    assert printed([Piece(text="a", traced=(Traced("a", "guessed"),))], colour=True, traced=True) == "a\n"


def test_an_answer_cannot_control_the_terminal() -> None:
    """Escape sequences lose their escape; line ends and tabs stay."""
    assert printed([Piece(text="a\x1b[2J\x9b\x07\r\n\tb\n")], colour=True, traced=False) == "a[2J\n\tb\n"


def test_the_legend_is_there_only_with_colour() -> None:
    """Without colour it would explain nothing."""
    assert "drafted and accepted" in Painter(io.StringIO(), colour=True).legend()
    assert Painter(io.StringIO(), colour=False).legend() == ""


@pytest.mark.parametrize(
    ("asked", "environ", "expected"),
    [
        (None, {}, True),
        (None, {"NO_COLOR": "1"}, False),
        (None, {"NO_COLOR": ""}, True),
        (None, {"TERM": "dumb"}, False),
        (True, {"NO_COLOR": "1"}, True),
        (False, {}, False),
    ],
)
def test_colour_follows_the_wish_then_the_environment(
    asked: bool | None, environ: dict[str, str], expected: bool
) -> None:
    """no-color.org: any value of NO_COLOR but the empty one."""
    assert wants_colour(Terminal(), asked, environ) is expected
    assert wants_colour(io.StringIO(), None, environ) is False


def test_figures_in_a_table_and_in_a_line() -> None:
    """Tokens, steps, tokens per step, acceptance, time."""
    assert figures_table(FIGURES, 9, 4.5) == [
        "  tokens           9",
        "  verify steps     3",
        "  tokens per step  3.00",
        "  acceptance       75% (6 of 8 drafted tokens)",
        "  wall time        4.5 s (2.0 tokens/s)",
    ]
    line = figures_line(FIGURES, 9, 4.5)
    assert line == "9 tokens in 4.5 s · 3.00 tokens per verify step · acceptance 75% (6 of 8 drafted tokens)"


def test_figures_that_are_missing_are_left_out() -> None:
    """A gateway of another make gives no `nexus` object, or not even usage."""
    assert figures_line(None, None, 1.0) == "? tokens in 1.0 s"
    assert figures_line(Figures(0, 0, 0, None), 4, 1.0).endswith("? tokens per verify step · acceptance no drafts")
