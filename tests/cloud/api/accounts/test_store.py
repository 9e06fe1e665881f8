"""What every account store does, whatever it keeps things in."""

import asyncio
import re

from cloud.api.accounts.keys import KeyId, Terms, digest, new_key
from cloud.api.accounts.money import Nano

EVERYTHING = {
    "name": "ü – everything",
    "scopes": frozenset({"admin", "models"}),
    "expires_at": 2_000_000_000,
    "requests_per_minute": 60,
    "tokens_per_minute": 10**9,
    "concurrent_streams": 4,
    "monthly_budget": Nano(10**18),
    "privacy": "trusted",
}


def test_a_key_is_random_and_only_its_digest_is_kept():
    """`nx_` and 43 characters for 32 bytes; the secret is in no repr, and two are never alike."""
    new, other = (new_key(Terms(name="a"), 0) for _ in range(2))
    assert re.fullmatch(r"nx_[A-Za-z0-9_-]{43}", new.secret) and new.secret != other.secret
    assert new.secret not in repr(new) and new.digest == digest(new.secret.encode()) and len(new.digest) == 32
    assert new.secret.startswith(new.key.start) and len(new.key.start) == 11 and new.key.id != other.key.id


async def test_keys_come_back_as_they_were_added(store, make_key):
    """With all terms or none, and only once for each revision."""
    plain, full = make_key(), make_key(**EVERYTHING)
    await store.add(plain)
    first = await store.changes(0)
    assert first.keys == {plain.digest: plain.key}
    await store.add(full)
    second = await store.changes(first.revision)
    assert second.keys == {full.digest: full.key} and second.revision > first.revision
    assert full.key.terms == Terms(**EVERYTHING)
    third = await store.changes(second.revision)
    assert (third.keys, third.revision) == ({}, second.revision)
    assert set((await store.changes(0)).keys) == {plain.digest, full.digest}


async def test_revoking(store, make_key):
    """A revoked key shows up as changed; the first time stands; an unknown one is none."""
    new = make_key()
    await store.add(new)
    before = (await store.changes(0)).revision
    assert (await store.revoke(new.key.id, 50)).revoked_at == 50
    changed = await store.changes(before)
    assert changed.keys[new.digest].revoked_at == 50
    assert (await store.revoke(new.key.id, 60)).revoked_at == 50
    assert (await store.changes(changed.revision)).keys == {}
    assert await store.revoke(KeyId("key_none"), 50) is None


async def test_no_change_is_missed(store, make_key):
    """A reader that asks while others write sees every key exactly once."""
    new = [make_key() for _ in range(20)]
    seen = []

    async def read():
        revision = 0
        while len(seen) < len(new):
            changes = await store.changes(revision)
            revision = changes.revision
            seen.extend(changes.keys)
            await asyncio.sleep(0)

    async with asyncio.timeout(20):
        await asyncio.gather(read(), *(store.add(key) for key in new))
    assert sorted(seen) == sorted(key.digest for key in new)


async def test_charges_are_recorded_once(store, make_charge):
    """Told twice, in one batch with new ones, a charge counts once; sums are by key and month."""
    a, b, other = make_charge(cost=5), make_charge(cost=7), make_charge("key_b", cost=0)
    later = make_charge(cost=11, at=a.at + 40 * 86400)
    assert await store.record([a, other]) == {("key_a", "2026-11"): 5, ("key_b", "2026-11"): 0}
    assert await store.record([a, b, later]) == {("key_a", "2026-11"): 12, ("key_a", later.month): 11}
    assert await store.record([a]) == {("key_a", "2026-11"): 12}
    assert await store.spending("2026-11") == {"key_a": 12, "key_b": 0}
    assert await store.spending(later.month) == {"key_a": 11} and await store.spending("2020-01") == {}


async def test_charges_can_be_looked_at(store, make_charge):
    """Newest first, of one key, with every field."""
    old, new = make_charge(at=100, outcome="left", streamed=True), make_charge(at=200, outcome="failed", cost=0)
    await store.record([old])
    await store.record([new, make_charge("key_b")])
    assert list(await store.charges(KeyId("key_a"), 10)) == [new, old]
    assert list(await store.charges(KeyId("key_a"), 1)) == [new]


async def test_amounts_are_exact(store, make_charge):
    """Sums beyond 2⁵³ lose nothing."""
    big = 2**60 + 1
    await store.record([make_charge(cost=big), make_charge(cost=1)])
    assert (await store.spending("2026-11"))["key_a"] == big + 1
