"""Accounts and sessions as people meet them."""

import asyncio

import pytest
from argon2 import PasswordHasher
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.identity import PASSWORD, Clock, make_identity, memory_stores

from cloud.api.accounts.keys import Terms
from cloud.api.audit.entry import Actor
from cloud.api.identity.account import email_of
from shared.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    NotFound,
    RateLimited,
    SessionOver,
    Unauthorized,
    WrongCredentials,
)

BY = Actor("cli:tester")
HERE = {"address": "192.0.2.1", "client": "test"}


async def sign_in(identity, email="alice@example.com", password=PASSWORD, address="192.0.2.1"):
    return await identity.people.sign_in(email, password, address=address, client="test")


@pytest.fixture
async def alice(identity):
    return await identity.people.create("alice@example.com", "Alice", ["developer", "owner"], PASSWORD, BY)


async def test_signing_in(identity, alice, clock):
    """Gives a token of 32 random bytes, of which only the digest is kept; the e-mail's case does not count."""
    account, new = await sign_in(identity, " Alice@EXAMPLE.com ")
    other = (await sign_in(identity))[1]
    assert account == alice and new.token.startswith("nxs_") and len(new.token) == 4 + 43
    assert new.token != other.token and new.token not in repr(new)
    who = await identity.people.who(new.token)
    assert (who.account, who.session) == (alice, new.session)
    clock.now = new.session.expires_at - 0.1
    await identity.people.who(new.token)
    clock.now += 0.1
    with pytest.raises(SessionOver, match="expired"):
        await identity.people.who(new.token)


async def test_refusals_are_alike(identity, alice):
    """A wrong password, an unknown address, an account without a password and a disabled one: the same words."""
    await identity.people.create("bob@example.com", "Bob", ["developer"], None, BY)
    await identity.people.create("carol@example.com", "Carol", ["developer"], PASSWORD, BY)
    await identity.people.set_disabled((await identity.people.find("carol@example.com")).id, True, BY)
    said = set()
    for email, password in (
        ("alice@example.com", "wrong password"),
        ("nobody@example.com", PASSWORD),
        ("bob@example.com", PASSWORD),
        ("carol@example.com", PASSWORD),
    ):
        with pytest.raises(WrongCredentials) as caught:
            await sign_in(identity, email, password)
        said.add(caught.value.message)
    assert len(said) == 1


async def test_guessing_is_bounded_for_an_account(identity, alice, clock):
    """From however many addresses, and although all guess at once; then even the right password has to wait. Success
    gives the attempt back.
    """
    for _ in range(30):
        await sign_in(identity)
    guesses = (sign_in(identity, password=f"wrong password {n}", address=f"192.0.2.{n}") for n in range(40))
    results = await asyncio.gather(*guesses, return_exceptions=True)
    assert sum(isinstance(result, WrongCredentials) for result in results) == 10
    assert sum(isinstance(result, RateLimited) for result in results) == 30
    with pytest.raises(RateLimited):
        await sign_in(identity)
    clock.now += 90
    await sign_in(identity)


async def test_guessing_is_bounded_for_an_address(identity, alice, clock):
    """Whichever accounts it tries; others go on."""
    for number in range(50):
        with pytest.raises(WrongCredentials):
            await sign_in(identity, f"nobody{number}@example.com")
    with pytest.raises(RateLimited):
        await sign_in(identity)
    await sign_in(identity, address="192.0.2.2")


async def test_signing_up(identity, memory):
    """Where it is allowed: as developer or owner, never as operator, once for an address."""
    account, new = await identity.people.sign_up("a@example.com", PASSWORD, "A", ["owner"], **HERE)
    assert account.roles == {"owner"} and (await identity.people.who(new.token)).account == account
    with pytest.raises(Conflict):
        await identity.people.sign_up("A@example.com", PASSWORD, "A", ["owner"], **HERE)
    with pytest.raises(InvalidInput):
        await identity.people.sign_up("b@example.com", PASSWORD, "B", ["operator"], **HERE)
    closed = make_identity(memory, Clock())
    with pytest.raises(Forbidden, match="nexus accounts create"):
        await closed.people.sign_up("b@example.com", PASSWORD, "B", ["owner"], **HERE)
    await closed.stop()


async def test_ending_sessions(identity, alice):
    """One's own, by id; what has ended opens nothing."""
    first, second = (await sign_in(identity))[1], (await sign_in(identity))[1]
    bob = await identity.people.create("bob@example.com", "Bob", ["developer"], PASSWORD, BY)
    with pytest.raises(NotFound):
        await identity.people.end_session(bob.id, first.session.id, Actor(bob.id))
    await identity.people.end_session(alice.id, first.session.id, Actor(alice.id))
    with pytest.raises(SessionOver, match="has ended"):
        await identity.people.who(first.token)
    assert [each.id for each in await identity.people.sessions(alice.id)] == [second.session.id]
    with pytest.raises(SessionOver, match="not known"):
        await identity.people.who("nxs_" + "x" * 43)


async def test_a_new_password_ends_other_sessions(identity, alice):
    """The one that changed it goes on; the current password is needed, and guessing it is bounded."""
    other, mine = (await sign_in(identity))[1], (await sign_in(identity))[1]
    who = await identity.people.who(mine.token)
    with pytest.raises(WrongCredentials):
        await identity.people.change_password(who, "wrong password", "another password")
    await identity.people.change_password(who, PASSWORD, "another password")
    await identity.people.who(mine.token)
    with pytest.raises(SessionOver):
        await identity.people.who(other.token)
    with pytest.raises(WrongCredentials):
        await sign_in(identity)
    await sign_in(identity, password="another password")
    who = await identity.people.who(mine.token)
    for _ in range(8):
        with pytest.raises(WrongCredentials):
            await identity.people.change_password(who, "wrong password", "another password")
    with pytest.raises(RateLimited):
        await identity.people.change_password(who, "another password", "yet another password")
    await identity.people.set_password(alice.id, "given by an operator", BY)
    with pytest.raises(SessionOver):
        await identity.people.who(mine.token)


async def test_a_hash_is_renewed_when_the_settings_change(identity, memory, clock, alice):
    """At the next sign-in, without a trace in the audit log."""
    stronger = make_identity(memory, clock, argon2_passes=2)
    before = await memory.actions()
    await sign_in(stronger)
    renewed = (await memory.identity.account(alice.id)).password
    assert renewed.startswith("$argon2id$v=19$m=8,t=2,p=1$") and PasswordHasher().verify(renewed, PASSWORD)
    assert await memory.actions() == [*before, "session.began"]
    await stronger.stop()


async def test_what_a_role_allowed_ends_with_it(identity, alice, memory):
    """Keys with `developer`; this gateway refuses them at once."""
    accounts = identity._accounts
    new = await accounts.create(Terms(name="mine"), alice.id)
    assert await accounts.ring.identify(new.secret.encode())
    await identity.people.set_roles(alice.id, ["owner"], BY)
    with pytest.raises(Unauthorized, match="revoked"):
        await accounts.ring.identify(new.secret.encode())
    before = await memory.actions()
    await identity.people.set_roles(alice.id, ["owner"], BY)
    await identity.people.set_disabled(alice.id, False, BY)
    assert await memory.actions() == before


@pytest.mark.parametrize(
    "text", ["", "alice", "@example.com", "a@b@c.d", "a@b", "a b@c.d", "a@c.d\n", "a@" + "x" * 260 + ".d"]
)
def test_what_is_no_email_address(text):
    """Said by name of the field; line ends at the edges are no part of it."""
    if text.strip() != text:
        assert email_of(text) == text.strip()
        return
    with pytest.raises(InvalidInput) as caught:
        email_of(text)
    assert caught.value.param == "email"


class Sessions(RuleBasedStateMachine):
    """Two accounts sign in and out, change passwords, are disabled and enabled, while time passes: a token opens its
    account exactly while the model says so.
    """

    LASTS_S = 1000
    WHO = st.sampled_from(["a@example.com", "b@example.com"])

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = Clock()
        self.identity = make_identity(memory_stores(), self.clock, session_s=self.LASTS_S, sessions=3)
        self.live = {}
        """Token: account, id, end."""
        self.over = set()
        self.disabled = set()
        self.passwords = {}
        self.number = 0

    def do(self, work):
        return self.loop.run_until_complete(work)

    @initialize()
    def make_accounts(self):
        self.ids = {}
        for email in ("a@example.com", "b@example.com"):
            made = self.do(self.identity.people.create(email, email, ["developer"], PASSWORD, BY))
            self.ids[email], self.passwords[email] = made.id, PASSWORD

    def mine(self, email):
        return [token for token, (whose, _, _) in self.live.items() if whose == email]

    def end(self, tokens):
        for token in tokens:
            self.over.add(token)
            del self.live[token]

    @rule(email=WHO)
    def sign_in(self, email):
        signing = sign_in(self.identity, email, self.passwords[email])
        if email in self.disabled:
            try:
                self.do(signing)
            except (WrongCredentials, RateLimited):
                return
            raise AssertionError("a disabled account was let in")
        try:
            _, new = self.do(signing)
        except RateLimited:
            return  # attempts while it was disabled count
        self.live[new.token] = email, new.session.id, new.session.expires_at
        self.end(self.mine(email)[:-3])

    @rule(email=WHO, seconds=st.integers(1, 700))
    def time_passes(self, email, seconds):
        self.clock.now += seconds
        self.end([token for token, (_, _, until) in self.live.items() if self.clock.now >= until])

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def sign_out(self, data):
        token = data.draw(st.sampled_from([*self.live]))
        email, session, _ = self.live[token]
        self.do(self.identity.people.end_session(self.ids[email], session, BY))
        self.end([token])

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def change_password(self, data):
        token = data.draw(st.sampled_from([*self.live]))
        email = self.live[token][0]
        self.number += 1
        new = f"password number {self.number}"
        who = self.do(self.identity.people.who(token))
        try:
            self.do(self.identity.people.change_password(who, self.passwords[email], new))
        except RateLimited:
            return
        self.passwords[email] = new
        self.end([each for each in self.mine(email) if each != token])

    @rule(email=WHO)
    def disable(self, email):
        self.do(self.identity.people.set_disabled(self.ids[email], True, BY))
        self.disabled.add(email)
        self.end(self.mine(email))

    @rule(email=WHO)
    def enable(self, email):
        self.do(self.identity.people.set_disabled(self.ids[email], False, BY))
        self.disabled.discard(email)

    @invariant()
    def tokens_open_what_they_should(self):
        for token, (email, session, _) in self.live.items():
            who = self.do(self.identity.people.who(token))
            assert (who.account.email, who.session.id) == (email, session)
        for token in self.over:
            try:
                self.do(self.identity.people.who(token))
            except SessionOver:
                continue
            raise AssertionError("a session that is over opened something")

    @invariant()
    def lists_agree(self):
        for email, account in getattr(self, "ids", {}).items():
            listed = {each.id for each in self.do(self.identity.people.sessions(account))}
            assert listed == {self.live[token][1] for token in self.mine(email)}

    def teardown(self):
        self.do(self.identity.stop())
        self.loop.close()


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
