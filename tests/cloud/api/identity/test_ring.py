"""Which nodes are known to belong to whom, and how soon a change is known."""

import asyncio

import pytest
from support.identity import NOW

from cloud.api.identity.node import Node, NodeState, revoke
from cloud.api.identity.ports import NodeChanges
from cloud.api.identity.ring import NodeRing
from cloud.api.store.following import POLL_S, UNKNOWN_S
from shared.errors import NodeRevoked, NodeUnpaired, Unavailable
from shared.ids import AccountId, NodeId


class Told:
    """A store that knows nodes, counts reads, and may be silent."""

    def __init__(self):
        self.nodes = {}
        self.revision = 0
        self.reads = 0
        self.silent = False

    def put(self, node):
        self.revision += 1
        self.nodes[node.id] = node, self.revision

    async def node_changes(self, since):
        self.reads += 1
        if self.silent:
            raise Unavailable("silent")
        return NodeChanges(self.revision, {id_: node for id_, (node, at) in self.nodes.items() if at > since})


def a_node(name="n", owner="acct_a"):
    return Node(id=NodeId(name), public_key=name.encode() * 32, owner=AccountId(owner), name=name, paired_at=NOW)


@pytest.fixture
def told():
    return Told()


@pytest.fixture
def ring(told, clock):
    return NodeRing(told, pairing_needed=True, monotonic=clock)


async def test_owners(ring, told):
    """Of paired nodes; of revoked and unknown ones nobody. Asking costs no read."""
    told.put(a_node())
    told.put(revoke(a_node("old"), NOW))
    await ring.refresh()
    reads = told.reads
    assert ring.owner("n") == "acct_a" and ring.owner("old") is None and ring.owner("x") is None
    assert ring.find("old").state is NodeState.REVOKED and ring.find("x") is None
    assert ring.refusal("n") is None and isinstance(ring.refusal("old"), NodeRevoked)
    assert await ring.check("n") is None and told.reads == reads


async def test_pairing_is_needed_only_where_it_is_asked_for(told, clock):
    """Otherwise unknown nodes are let in without a read, but never revoked ones."""
    told.put(revoke(a_node("old"), NOW))
    ring = NodeRing(told, monotonic=clock)
    await ring.refresh()
    assert await ring.check("x") is None and told.reads == 1
    assert isinstance(await ring.check("old"), NodeRevoked)


async def test_a_node_that_was_just_paired_is_known_at_once(ring, told, clock):
    """The store is asked about an unknown one, once for many; the refusal says what to do."""
    await ring.refresh()
    clock.now += 1
    assert isinstance(await ring.check("n"), NodeUnpaired) and "nexus agent pair" in ring.refusal("n").message
    told.put(a_node())
    clock.now += UNKNOWN_S
    assert await ring.check("n") is None
    clock.now += UNKNOWN_S
    reads = told.reads
    assert all(await asyncio.gather(*(ring.check(f"x{number}") for number in range(300))))
    assert told.reads == reads + 1


async def test_revocation_is_told_within_a_second(ring, told, clock, monkeypatch):
    """By the next look, half a second later, once."""
    assert POLL_S <= 0.5
    told.put(a_node())
    await ring.refresh()
    gone = []
    ring.on_revoked = lambda node, error: gone.append((node, type(error)))
    told.put(revoke(a_node(), NOW))
    looked = asyncio.Event()

    async def pass_time(seconds):
        clock.now += seconds
        if told.reads > 3:
            looked.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(asyncio, "sleep", pass_time)
    task = asyncio.create_task(ring.run())
    await looked.wait()
    task.cancel()
    assert gone == [("n", NodeRevoked)] and ring.owner("n") is None


async def test_a_silent_store_turns_no_known_node_away(ring, told, clock):
    """What is known stays in force, what is not is refused, and the ring recovers by itself."""
    told.put(a_node())
    await ring.refresh()
    told.silent = True
    told.put(a_node("later"))
    clock.now += 1
    assert await ring.check("n") is None and await ring.check("later") is not None
    told.silent = False
    clock.now += 1
    assert await ring.check("later") is None
