"""The mailbox between the draft port's thread and the scheduler."""

from itertools import count

from cloud.verifier.port.mailbox import Letter, Mailbox
from shared.draftport.messages import DropTape, Policy, PortDraft


def draft(pos: int, *tokens: int, stream: str = "s", tape: str = "t", epoch: int = 0) -> PortDraft:
    return PortDraft(stream=stream, tape=tape, epoch=epoch, pos=pos, tokens=tokens)


def mailbox() -> Mailbox:
    return Mailbox(count(1.0).__next__)


def test_drafts_that_continue_each_other_become_one() -> None:
    """With the time of the first and of the last; other streams in between do not matter."""
    box = mailbox()
    for message in (draft(5, 1), draft(5, 9, stream="other"), draft(6, 2, 3), draft(8, 4)):
        box.put(message)
    assert box.drain() == [Letter(draft(5, 1, 2, 3, 4), 1.0, 4.0), Letter(draft(5, 9, stream="other"), 2.0, 2.0)]
    assert box.drain() == []


def test_what_does_not_continue_stays_apart() -> None:
    """Another epoch, another tape, a gap, or something else in between: order is kept."""
    box = mailbox()
    messages = [
        draft(5, 1),
        draft(6, 2, epoch=1),
        draft(7, 3, epoch=1, tape="u"),
        draft(9, 4, epoch=1, tape="u"),
        Policy(stream="s", wait_ms=1.0, k=4),
        draft(10, 5, epoch=1, tape="u"),
        DropTape(stream="s", tape="u"),
        draft(11, 6, epoch=1, tape="u"),
    ]
    for message in messages:
        box.put(message)
    assert [letter.message for letter in box.drain()] == messages


def test_what_was_drained_is_not_added_to() -> None:
    """The scheduler has it already."""
    box = mailbox()
    box.put(draft(5, 1))
    box.drain()
    box.put(draft(6, 2))
    assert [letter.message for letter in box.drain()] == [draft(6, 2)]


def test_waiting_ends_when_something_comes_or_time_is_up() -> None:
    """The scheduler's only pause."""
    box = mailbox()
    assert not box.wait(0.0)
    box.put(draft(5, 1))
    assert box.wait(60.0)
