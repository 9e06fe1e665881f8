"""Passwords: what is kept of them, and that nothing is learnt from how they are refused."""

import asyncio
import re
import threading

import pytest
from argon2 import PasswordHasher
from support.identity import CHEAP, PASSWORD

from cloud.api.identity.passwords import LONGEST, SHORTEST, Passwords, Verdict
from shared.errors import InvalidInput, Unavailable


class Counting:
    """The cheap hasher, with what was asked of it."""

    time_cost, memory_cost, parallelism = CHEAP.time_cost, CHEAP.memory_cost, CHEAP.parallelism

    def __init__(self):
        self.verified = []
        self.threads = set()
        self.go = threading.Event()
        self.go.set()

    def hash(self, password):
        self.threads.add(threading.current_thread())
        return CHEAP.hash(password)

    def verify(self, hash, password):
        self.go.wait(20)
        self.verified.append(hash)
        return CHEAP.verify(hash, password)

    def check_needs_rehash(self, hash):
        return CHEAP.check_needs_rehash(hash)


async def test_only_an_argon2id_hash_is_kept(passwords):
    """With a salt of its own each time; right and wrong ones are told apart."""
    one, two = await passwords.hash(PASSWORD), await passwords.hash(PASSWORD)
    assert re.fullmatch(r"\$argon2id\$v=19\$m=8,t=1,p=1\$.{22}\$.{43}", one) and one != two
    assert await passwords.verify(PASSWORD, one) == Verdict(True)
    assert await passwords.verify(PASSWORD + "x", one) == Verdict(False)
    assert await passwords.verify(PASSWORD, "no hash") == Verdict(False)


def test_the_default_work_is_what_rfc_9106_recommends():
    """Its second choice: 64 MiB, three passes, four lanes."""
    hasher = Passwords()._hasher
    assert (hasher.memory_cost, hasher.time_cost, hasher.parallelism) == (65_536, 3, 4)


async def test_keyboards_that_differ_send_the_same_password(passwords):
    """One form of Unicode for all."""
    stored = await passwords.hash("ein schönes passwort")
    assert (await passwords.verify("ein scho\u0308nes passwort", stored)).right


@pytest.mark.parametrize("text", ["", "x" * (SHORTEST - 1), "x" * (LONGEST + 1)])
async def test_a_password_has_a_length(passwords, text):
    """Too short and too long ones are refused, by name of the field."""
    with pytest.raises(InvalidInput) as caught:
        await passwords.hash(text)
    assert caught.value.param == "password"


async def test_an_unknown_account_costs_the_same_work():
    """One verification with the same parameters, which nothing passes, and no other difference."""
    hasher = Counting()
    passwords = Passwords(hasher)
    known = CHEAP.hash(PASSWORD)
    assert not (await passwords.verify("wrong password", known)).right
    assert not (await passwords.verify(PASSWORD, None)).right
    assert len(hasher.verified) == 2
    parameters = [re.match(r"\$argon2id\$v=19\$m=\d+,t=\d+,p=\d+\$", each)[0] for each in hasher.verified]
    assert parameters[0] == parameters[1] and len(hasher.verified[0]) == len(hasher.verified[1])
    passwords.close()


async def test_a_hash_with_other_parameters_is_renewed():
    """When the password is right, and only then."""
    older = PasswordHasher(time_cost=2, memory_cost=16, parallelism=1).hash(PASSWORD)
    passwords = Passwords(CHEAP)
    assert (await passwords.verify("wrong password", older)).renewed is None
    renewed = (await passwords.verify(PASSWORD, older)).renewed
    assert renewed.startswith("$argon2id$v=19$m=8,t=1,p=1$")
    assert await passwords.verify(PASSWORD, renewed) == Verdict(True)
    passwords.close()


async def test_the_event_loop_goes_on_meanwhile():
    """The work is done in threads, few at a time; beyond a bound callers are sent away at once."""
    hasher = Counting()
    hasher.go.clear()
    passwords = Passwords(hasher, threads=1, waiting=2)
    stored = CHEAP.hash(PASSWORD)
    waiting = [asyncio.create_task(passwords.verify(PASSWORD, stored)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable):
        await passwords.verify(PASSWORD, stored)
    waiting[2].cancel()
    hasher.go.set()
    assert [(await task).right for task in waiting[:2]] == [True, True]
    await passwords.hash(PASSWORD)
    assert threading.main_thread() not in hasher.threads and hasher.threads
    passwords.close()
    passwords.close()
