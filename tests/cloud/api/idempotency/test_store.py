"""What every store of answers does, and what a claim comes upon."""

import asyncio
from dataclasses import replace

import pytest

from cloud.api.idempotency.answers import Call, Found, call_from, decide
from shared.errors import InvalidInput

CLAIM = b"c" * 32


@pytest.fixture
def running(make):
    """A new claim."""

    def row(**fields):
        given = {
            "claim": CLAIM,
            "state": "running",
            "ended_at": None,
            "lease_until": 50,
            "content": None,
            "headers": (),
        }
        return make(**given | fields)

    return row


def test_what_a_claim_comes_upon(make, running):
    """By body first, then by state, owner and lease; what has expired is as if it were not there."""
    new = running(owner="me")
    assert decide(None, new, 10) is Found.NEW
    assert decide(make(claim=CLAIM), new, 10) is Found.REPLAY
    assert decide(make(claim=CLAIM), new, 1000) is Found.NEW
    assert decide(make(claim=CLAIM, fingerprint=b"o" * 32), new, 10) is Found.CONFLICT
    assert decide(make(claim=CLAIM, state="left", content=None), new, 10) is Found.TAKE_OVER
    assert decide(running(owner="other"), new, 10) is Found.BUSY
    assert decide(running(owner="other"), new, 50) is Found.TAKE_OVER
    assert decide(running(owner="me"), new, 10) is Found.TAKE_OVER
    assert decide(running(owner="other", expires_at=5), new, 10) is Found.BUSY
    assert decide(running(owner="other", expires_at=5, lease_until=5), new, 10) is Found.NEW
    assert decide(running(owner="other", fingerprint=b"o" * 32), new, 60) is Found.CONFLICT


async def test_a_claim_is_taken_once(store, running):
    """Of many at once one gets it, the others come upon it."""
    claims = [running(owner=f"gateway {number}") for number in range(8)]
    found = await asyncio.gather(*(store.claim(claim, 10) for claim in claims))
    assert sorted(decision.name for decision, _ in found) == ["BUSY"] * 7 + ["NEW"]
    [winner] = [row for decision, row in found if decision is Found.NEW]
    assert {row.id for _, row in found} == {winner.id}


async def test_an_answer_comes_back_byte_for_byte(store, make, running):
    """With its headers, in place of the claim; another body stays a conflict."""
    _, mine = await store.claim(running(), 10)
    done = make(id=mine.id, claim=CLAIM)
    await store.keep([done])
    assert await store.claim(running(), 10) == (Found.REPLAY, done)
    assert (await store.claim(running(fingerprint=b"o" * 32), 10))[0] is Found.CONFLICT
    assert (await store.claim(running(), 1000))[0] is Found.NEW


async def test_going_on_with_what_was_left(store, running):
    """Seed and payment are those of the first attempt, under the same id."""
    _, mine = await store.claim(running(seed=3), 10)
    await store.keep([replace(mine, state="left", billed=40, ended_at=20)])
    decision, taken = await store.claim(running(seed=9, owner="other"), 30)
    assert decision is Found.TAKE_OVER and (taken.id, taken.seed, taken.billed) == (mine.id, 3, 40)
    assert (taken.state, taken.owner) == ("running", "other")
    assert (await store.claim(running(owner="me"), 30))[0] is Found.BUSY


async def test_leases(store, running):
    """A running claim is believed until its lease ends; its owner renews it, and gives it up when it ends."""
    _, row = await store.claim(running(owner="other", lease_until=20), 10)
    await store.claim(running(owner="other", lease_until=20, claim=b"d" * 32), 10)
    await store.renew([row.id], 90)
    assert (await store.claim(running(), 80))[0] is Found.BUSY
    assert (await store.claim(running(claim=b"d" * 32), 80))[0] is Found.TAKE_OVER
    await store.release("other")
    assert (await store.claim(running(), 80))[0] is Found.TAKE_OVER


async def test_dropped_claims_are_free(store, running):
    """A failed attempt leaves nothing."""
    _, mine = await store.claim(running(seed=3), 10)
    await store.drop(mine.id)
    await store.drop("ans_none")
    decision, taken = await store.claim(running(seed=9), 10)
    assert decision is Found.NEW and taken.seed == 9


async def test_retries_find_their_answer(store, make):
    """By fingerprint, within the window, each retry one of several equal ones, never one of an Idempotency-Key."""
    first, second = make(ended_at=100), make(ended_at=110)
    await store.keep([first, second, make(claim=CLAIM), make(fingerprint=b"o" * 32), make(ended_at=None)])
    assert await store.match(b"f" * 32, 120, 1) is None
    assert await store.match(b"f" * 32, 90, 1) == second
    assert await store.match(b"f" * 32, 90, 1) == first
    assert await store.match(b"f" * 32, 90, 1) is None
    assert (await store.match(b"f" * 32, 105, 2)).id == second.id
    assert await store.match(b"x" * 32, 0, 5) is None


async def test_a_retry_of_what_was_left_takes_it_along(store, make):
    """Payment without an answer is given to one retry only."""
    await store.keep([make(state="left", content=None, billed=12)])
    assert (await store.match(b"f" * 32, 0, 1)).billed == 12
    assert await store.match(b"f" * 32, 0, 2) is None


async def test_purge(store, make, running):
    """Old ones go, then the oldest while there are too many bytes; running ones stay."""
    await store.claim(running(expires_at=200, lease_until=400), 10)
    rows = [make(content=b"x" * 100, ended_at=at) for at in range(5)]
    await store.keep([*rows, make(expires_at=200, content=b"y" * 1000)])
    assert await store.purge(300, 10_000) == 500
    assert await store.purge(300, 250) == 200
    assert (await store.match(b"f" * 32, 0, 1)).ended_at == 4
    assert (await store.match(b"f" * 32, 0, 1)).ended_at == 3
    assert await store.match(b"f" * 32, 0, 1) is None
    assert (await store.claim(running(owner="other"), 10))[0] is Found.BUSY


def test_calls():
    """Caller, address and body make the fingerprint, caller and key the claim; parts never run into each other."""

    def call(**fields):
        return Call(**{"key": "a", "path": "/p", "body": b"{}"} | fields)

    same = call()
    assert call().fingerprint() == same.fingerprint() and same.claim() is None
    others = [call(key="b"), call(path="/q"), call(body=b"{ }"), call(key="a/", path="p")]
    assert len({each.fingerprint() for each in [same, *others]}) == 5
    assert call(idempotency_key=b"k").claim() == call(idempotency_key=b"k", body=b"x").claim()
    assert call(idempotency_key=b"k").claim() != call(key="b", idempotency_key=b"k").claim()
    assert call(key="ab", idempotency_key=b"c").claim() != call(key="a", idempotency_key=b"bc").claim()


def test_headers():
    """What counts as a key and as a retry."""
    read = lambda *headers: call_from(headers, "a", "/p", b"", None)  # noqa: E731
    assert read().retry is None and read().idempotency_key is None
    assert read((b"idempotency-key", b" my-key ")).idempotency_key == b"my-key"
    assert read((b"x-stainless-retry-count", b"2")).retry == 2
    for strange in (b"", b"-1", b"1.5", b"9999", b"x", b"\xd9\xa1"):
        assert read((b"x-stainless-retry-count", strange)).retry is None
    for wrong in (b"", b"a b", b"x" * 256, b"\xff", b"a\x00"):
        with pytest.raises(InvalidInput, match="Idempotency-Key"):
            read((b"idempotency-key", wrong))
