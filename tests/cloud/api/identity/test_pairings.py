"""Pairing: a node, its owner, and everything that may come between them."""

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from support.identity import PASSWORD, Clock, make_identity, memory_stores

from cloud.api.audit.entry import Actor
from cloud.api.identity.grant import GrantEvent
from cloud.api.identity.oauth import OAuthError
from cloud.api.identity.pairings import node_name
from shared.errors import Conflict, NodeRevoked, NotFound, RateLimited, Unavailable
from shared.keys import NodeKey, node_id, pairing_payload

BY = Actor("cli:tester")
PAGE = "https://nexus.example/device"


class Machine:
    """A node that wants to be paired, as its agent would go about it."""

    def __init__(self, identity, clock):
        self.identity = identity
        self.clock = clock
        self.key = NodeKey.generate()
        self.id = node_id(self.key.public)

    async def ask(self, name="tower", address="192.0.2.9"):
        new = await self.identity.pairings.ask(self.key.public.hex(), name, page=PAGE, address=address)
        self.code, self.device_code = new.grant.user_code, new.device_code
        return new

    def sign(self, **other):
        given = {"device_code": self.device_code, "user_code": self.code, "verification_uri": PAGE} | other
        return self.key.sign(pairing_payload(**given))

    async def poll(self, signature=None, wait_s=60.0):
        self.clock.now += wait_s
        signature = self.sign() if signature is None else signature
        return await self.identity.pairings.redeem(self.device_code, signature, address="192.0.2.9")


async def refused(work):
    with pytest.raises(OAuthError) as caught:
        await work
    return caught.value.code


@pytest.fixture
async def owners(identity):
    return [
        await identity.people.create(f"{name}@example.com", name, ["owner"], PASSWORD, BY) for name in ("alice", "bob")
    ]


@pytest.fixture
def machine(identity, clock):
    return Machine(identity, clock)


async def test_a_node_is_paired(identity, owners, machine, memory):
    """Asked, approved, taken up: the node's key belongs to the owner, who sees beforehand what is approved."""
    alice, _ = owners
    await machine.ask("my\x1b[2J tower", "203.0.113.7")
    assert await refused(machine.poll()) == "authorization_pending"
    shown = await identity.pairings.look_up(machine.code.lower().replace("-", " "), alice.id)
    assert (shown.name, shown.node, shown.address) == ("my[2J tower", machine.id, "203.0.113.7")
    await identity.pairings.decide(machine.code.lower(), GrantEvent.APPROVE, alice.id)
    assert identity.nodes.owner(machine.id) is None
    node = await machine.poll()
    assert (node.id, node.owner, node.public_key) == (machine.id, alice.id, machine.key.public)
    assert identity.nodes.owner(machine.id) == alice.id
    assert await memory.actions() == ["account.created"] * 2 + ["pairing.approved", "node.paired"]
    assert await machine.poll() == node
    assert (await memory.actions())[-2:] == ["pairing.approved", "node.paired"]


async def test_the_key_has_to_be_proved(identity, owners, machine, clock):
    """By a signature over both codes and the address that the owner is sent to: who asked in another's name gets
    nothing, nor does who passes the codes of one gateway on to nodes of another.
    """
    alice, _ = owners
    await machine.ask()
    await identity.pairings.decide(machine.code, GrantEvent.APPROVE, alice.id)
    thief = Machine(identity, clock)
    thief.device_code, thief.code = machine.device_code, machine.code
    relayed = machine.sign(verification_uri="https://elsewhere.example/device")
    for signature in (thief.sign(), relayed, machine.sign(user_code="BBBB-BBBB"), b"", b"x" * 64):
        assert await refused(machine.poll(signature, wait_s=0)) == "invalid_grant"
    assert identity.nodes.owner(machine.id) is None
    assert (await machine.poll(wait_s=0)).owner == alice.id


async def test_refusals_have_the_codes_of_the_rfc(identity, owners, machine, clock):
    """Denied, expired, too soon, unknown."""
    alice, _ = owners
    await machine.ask()
    assert await refused(machine.poll()) == "authorization_pending"
    assert await refused(machine.poll(wait_s=1)) == "slow_down"
    await identity.pairings.decide(machine.code, GrantEvent.DENY, alice.id)
    assert await refused(machine.poll()) == "access_denied"
    await machine.ask()
    assert await refused(machine.poll(wait_s=900)) == "expired_token"
    with pytest.raises(Conflict, match="expired"):
        await identity.pairings.decide(machine.code, GrantEvent.APPROVE, alice.id)
    machine.device_code = "unknown"
    assert await refused(machine.poll()) == "invalid_grant"
    assert await refused(identity.pairings.ask("xyz", "n", page=PAGE, address="a")) == "invalid_request"


async def test_a_key_stays_with_its_owner(identity, owners, machine):
    """Pairing it again renames it; another account cannot have it, and nobody once it is revoked."""
    alice, bob = owners
    for account, name, code in ((alice, "one", None), (bob, "two", "access_denied"), (alice, "three", None)):
        await machine.ask(name)
        await identity.pairings.decide(machine.code, GrantEvent.APPROVE, account.id)
        if code is None:
            assert (await machine.poll()).name == name
        else:
            assert await refused(machine.poll()) == code
    await identity.pairings.revoke(machine.id, Actor(alice.id), alice.id)
    assert isinstance(identity.nodes.refusal(machine.id), NodeRevoked)
    assert await refused(machine.poll()) == "access_denied"
    await machine.ask()
    await identity.pairings.decide(machine.code, GrantEvent.APPROVE, alice.id)
    assert await refused(machine.poll()) == "access_denied"


async def test_an_account_that_ended_meanwhile_gets_no_node(identity, owners, machine):
    """Between approval and taking up."""
    alice, _ = owners
    await machine.ask()
    await identity.pairings.decide(machine.code, GrantEvent.APPROVE, alice.id)
    await identity.people.set_disabled(alice.id, True, BY)
    assert await refused(machine.poll()) == "access_denied"
    await identity.people.set_disabled(alice.id, False, BY)
    assert await refused(machine.poll()) == "access_denied"


async def test_an_owner_looks_after_own_nodes_only(identity, owners, machine, memory):
    """Another's is as if it were not there; an operator reaches all."""
    alice, bob = owners
    await machine.ask()
    await identity.pairings.decide(machine.code, GrantEvent.APPROVE, alice.id)
    await machine.poll()
    for work in (
        identity.pairings.rename(machine.id, "mine", Actor(bob.id), bob.id),
        identity.pairings.revoke(machine.id, Actor(bob.id), bob.id),
    ):
        with pytest.raises(NotFound):
            await work
    await identity.pairings.rename(machine.id, "attic", Actor(alice.id), alice.id)
    assert (await machine.poll()).name == "attic"
    assert [node.name for node in await identity.pairings.nodes(10, owner=alice.id)] == ["attic"]
    assert not await identity.pairings.nodes(10, owner=bob.id)
    await identity.pairings.revoke(machine.id, BY)
    assert (await memory.actions())[-2:] == ["node.renamed", "node.revoked"]


async def test_codes_cannot_be_tried_out(identity, owners, machine):
    """Ten wrong ones, and the account has to wait; device codes are bounded for each address."""
    alice, bob = owners
    await machine.ask()
    for number in range(10):
        with pytest.raises(NotFound):
            await identity.pairings.decide(f"BBBB-BBB{'BCDFGHJKLM'[number]}", GrantEvent.APPROVE, alice.id)
    with pytest.raises(RateLimited):
        await identity.pairings.look_up(machine.code, alice.id)
    await identity.pairings.look_up(machine.code, bob.id)
    for _ in range(50):
        assert await refused(identity.pairings.redeem("unknown", b"", address="192.0.2.7")) == "invalid_grant"
    with pytest.raises(RateLimited):
        await identity.pairings.redeem("unknown", b"", address="192.0.2.7")


async def test_codes_are_bounded(memory, clock):
    """For each address, and in all."""
    identity = make_identity(memory, clock, pairings=60)
    machine = Machine(identity, clock)
    for _ in range(50):
        await machine.ask(address="192.0.2.1")
    with pytest.raises(RateLimited):
        await machine.ask(address="192.0.2.1")
    for number in range(10):
        await machine.ask(address=f"192.0.2.{2 + number}")
    with pytest.raises(Unavailable):
        await machine.ask(address="192.0.2.99")
    await identity.stop()


@pytest.mark.parametrize(
    ("text", "name"), [("", "unnamed node"), ("\x00\n", "unnamed node"), ("  a\tb ", "ab"), ("x" * 500, "x" * 100)]
)
def test_a_node_calls_itself_what_can_be_shown(text, name):
    """Whatever it sends."""
    assert node_name(text) == name


class Pairing(RuleBasedStateMachine):
    """Nodes and owners do what they want in any order while time passes; the model keeps what each code has come to,
    and whose each key is.
    """

    grants = Bundle("grants")
    LASTS_S = 300
    WHO = st.integers(0, 1)

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = Clock()
        bounds = {"attempts_per_account": 10_000, "attempts_per_address": 10_000, "pairing_s": self.LASTS_S}
        self.identity = make_identity(memory_stores(), self.clock, **bounds)
        self.machines = [Machine(self.identity, self.clock) for _ in range(2)]
        self.owner = {}
        """By machine: whose it is."""
        self.revoked = set()

    def do(self, work):
        return self.loop.run_until_complete(work)

    @initialize()
    def make_owners(self):
        make = self.identity.people.create
        self.owners = [self.do(make(f"{n}@example.com", f"{n}", ["owner"], None, BY)).id for n in "ab"]

    @rule(target=grants, which=WHO)
    def ask(self, which):
        new = self.do(self.machines[which].ask())
        return {
            "which": which,
            "code": new.grant.user_code,
            "device_code": new.device_code,
            "until": new.grant.expires_at,
            "state": "pending",
            "by": None,
            "asked": None,
            "interval": 5,
        }

    def look(self, grant):
        if grant["state"] in ("pending", "approved") and self.clock.now >= grant["until"]:
            grant["state"] = "expired"

    @rule(grant=grants, who=WHO, approve=st.booleans())
    def decide(self, grant, who, approve):
        self.look(grant)
        wanted = "approved" if approve else "denied"
        free = grant["state"] == "pending" or (grant["state"] == "approved" and grant["by"] == who)
        same = grant["state"] == wanted and grant["by"] == who
        event = GrantEvent.APPROVE if approve else GrantEvent.DENY
        work = self.identity.pairings.decide(grant["code"], event, self.owners[who])
        if free or same:
            assert self.do(work).state == wanted
            grant["state"], grant["by"] = wanted, who
        else:
            with pytest.raises(Conflict):
                self.do(work)

    @rule(grant=grants, forged=st.booleans())
    def poll(self, grant, forged):
        self.look(grant)
        machine = self.machines[grant["which"]]
        machine.code, machine.device_code = grant["code"], grant["device_code"]
        if forged:
            assert self.do(refused(machine.poll(b"y" * 64, wait_s=0))) == "invalid_grant"
            return
        asked, grant["asked"] = grant["asked"], int(self.clock.now)
        if asked is not None and grant["asked"] - asked < grant["interval"] - 1:
            grant["interval"] += 5
            assert self.do(refused(machine.poll(wait_s=0))) == "slow_down"
            return
        which, by = grant["which"], grant["by"]
        mine = which not in self.revoked and self.owner.get(which) in (None, by)
        if grant["state"] in ("approved", "paired") and mine:
            node = self.do(machine.poll(wait_s=0))
            assert node.owner == self.owners[by]
            grant["state"], self.owner[which] = "paired", by
            return
        if grant["state"] in ("approved", "paired"):
            grant["state"] = "denied"
        expected = {"pending": "authorization_pending", "denied": "access_denied", "expired": "expired_token"}
        assert self.do(refused(machine.poll(wait_s=0))) == expected[grant["state"]]

    @rule(which=WHO)
    def revoke(self, which):
        work = self.identity.pairings.revoke(self.machines[which].id, BY)
        if which in self.owner and which not in self.revoked:
            self.do(work)
            self.revoked.add(which)
        else:
            with pytest.raises((NotFound, Conflict)):
                self.do(work)

    @rule(seconds=st.sampled_from([1, 4, 5, 6, 11, 60, 200]))
    def time_passes(self, seconds):
        self.clock.now += seconds

    @invariant()
    def the_ring_knows_the_owners(self):
        for which, machine in enumerate(self.machines):
            owner = self.owner.get(which)
            expected = self.owners[owner] if owner is not None and which not in self.revoked else None
            assert self.identity.nodes.owner(machine.id) == expected
            assert (self.identity.nodes.refusal(machine.id) is not None) == (which in self.revoked)

    def teardown(self):
        self.do(self.identity.stop())
        self.loop.close()


TestPairing = Pairing.TestCase
TestPairing.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
