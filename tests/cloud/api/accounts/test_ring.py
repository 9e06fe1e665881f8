"""Which keys are let in, and how soon a change is known."""

import asyncio

import pytest

from cloud.api.accounts.keys import DEFAULT_SCOPES
from cloud.api.accounts.memory import MemoryAccounts
from cloud.api.accounts.ring import KeyRing
from cloud.api.store.following import POLL_S, UNKNOWN_S
from shared.errors import Unauthorized, Unavailable


class Counting(MemoryAccounts):
    """Counts reads, and may be silent."""

    def __init__(self):
        super().__init__()
        self.reads = 0
        self.silent = False

    async def changes(self, since):
        self.reads += 1
        if self.silent:
            raise Unavailable("silent")
        return await super().changes(since)


@pytest.fixture
def counting():
    return Counting()


@pytest.fixture
def ring(counting, clock):
    """With one key of the settings; its age is measured by the same clock."""
    return KeyRing(counting, ["settings-key-1"], clock=clock, monotonic=clock)


async def test_keys_of_the_settings(ring):
    """They are known in full only, have no limits, and may not manage keys."""
    key = await ring.identify(b"settings-key-1")
    assert key.in_settings and key.terms.scopes == DEFAULT_SCOPES and not key.allows("admin")
    assert key.terms.monthly_budget is None and b"settings" not in key.id.encode()
    for wrong in (b"settings-key-", b"settings-key-12", b"", b"\xff\x00"):
        with pytest.raises(Unauthorized, match="not known"):
            await ring.identify(wrong)


async def test_a_known_key_costs_no_read(ring, counting, make_key):
    """A thousand requests with it ask the store nothing."""
    new = make_key()
    await counting.add(new)
    await ring.refresh()
    reads = counting.reads
    for _ in range(1000):
        assert await ring.identify(new.secret.encode()) == new.key
    assert counting.reads == reads


async def test_a_new_key_is_known_at_once(ring, counting, make_key, clock):
    """One that another process added is asked for; a flood of unknown keys makes few reads."""
    await ring.refresh()
    new = make_key()
    await counting.add(new)
    clock.now += 0.001
    assert await ring.identify(new.secret.encode()) == new.key
    reads = counting.reads
    clock.now += UNKNOWN_S
    guesses = (ring.identify(b"guess-%d" % number) for number in range(500))
    refused = await asyncio.gather(*guesses, return_exceptions=True)
    assert {type(refusal) for refusal in refused} == {Unauthorized} and counting.reads == reads + 1


async def test_revocation_is_known_within_a_second(ring, counting, make_key, clock, monkeypatch):
    """The next look, half a second later, ends the key; the words say why."""
    assert POLL_S <= 0.5
    new = make_key()
    await counting.add(new)
    await ring.refresh()
    await counting.revoke(new.key.id, 5)
    looked = asyncio.Event()

    async def pass_time(seconds):
        clock.now += seconds
        if counting.reads > 2:
            looked.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(asyncio, "sleep", pass_time)
    began = clock.now
    task = asyncio.create_task(ring.run())
    while not looked.is_set():
        await asyncio.wait({task}, timeout=0)
    task.cancel()
    assert clock.now - began <= 3 * POLL_S
    with pytest.raises(Unauthorized, match="revoked"):
        await ring.identify(new.secret.encode())


async def test_expiry(ring, counting, make_key, clock):
    """At its last second a key is over."""
    new = make_key(expires_at=int(clock.now) + 10)
    await counting.add(new)
    await ring.refresh()
    clock.now += 9.9
    assert await ring.identify(new.secret.encode())
    clock.now += 0.1
    with pytest.raises(Unauthorized, match="expired"):
        await ring.identify(new.secret.encode())


async def test_a_silent_store_ends_no_known_key(ring, counting, make_key, clock):
    """Known keys stay in force, unknown ones are refused, and the ring recovers by itself."""
    new, later = make_key(), make_key()
    await counting.add(new)
    await ring.refresh()
    counting.silent = True
    await counting.add(later)
    clock.now += 1
    assert await ring.identify(new.secret.encode()) == new.key
    with pytest.raises(Unauthorized):
        await ring.identify(later.secret.encode())
    counting.silent = False
    clock.now += 1
    assert await ring.identify(later.secret.encode()) == later.key
