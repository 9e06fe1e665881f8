"""What every identity store does, whatever it keeps things in."""

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy import delete, update
from sqlalchemy.exc import IntegrityError
from support.identity import NOW, Stores

from cloud.api.accounts.keys import Terms, new_key
from cloud.api.accounts.sql import SqlAccounts
from cloud.api.audit.entry import Actor, Entry
from cloud.api.audit.sql import SqlAudit
from cloud.api.identity.account import AccountEvent, AccountState, advance, created, new_account, with_roles
from cloud.api.identity.grant import GrantEvent, GrantState, decide, new_grant
from cloud.api.identity.node import Node, NodeState, revoke
from cloud.api.identity.ports import GrantChange, NodeChange
from cloud.api.identity.rules import KEEP_GRANTS_S, KEEP_SESSIONS_S
from cloud.api.identity.session import SessionState, new_session
from cloud.api.identity.sql import SqlIdentity
from cloud.api.store.database import Database
from cloud.api.store.identity_tables import AUDIT
from shared.errors import Conflict, Forbidden, NotFound, Unavailable, WrongCredentials
from shared.keys import NodeKey, node_id

BY = Actor("cli:tester")


def entry(action="test", subject="x", at=NOW, **detail):
    return Entry(at=at, actor=BY, action=action, subject=subject, detail=detail)


async def an_account(stores, email="alice@example.com", roles=("developer", "owner"), at=NOW):
    account = new_account(email, "Alice – ü", roles, at, "$argon2id$x")
    await stores.identity.add_account(account, created(account, BY))
    return account


async def a_node(stores, owner, name="tower"):
    key = NodeKey.generate()
    new = new_grant(key.public, name, "https://x/device", "127.0.0.1", NOW, lasts_s=900, interval_s=5)
    assert await stores.identity.add_grant(new, 10)
    node = Node(id=node_id(key.public), public_key=key.public, owner=owner.id, name=name, paired_at=NOW)

    def take_up(view):
        return GrantChange(grant=replace(view.grant, state=GrantState.PAIRED, account=owner.id), node=node)

    await stores.identity.change_grant(new.digest, take_up)
    return node


async def test_accounts_come_back_as_they_were_added(stores):
    """By id, by e-mail address, and in the order of their creation, page by page."""
    alice = await an_account(stores)
    bob = await an_account(stores, "bob@example.com", ("operator",), NOW + 5)
    carol = await an_account(stores, "carol@example.com", ("owner",), NOW + 9)
    store = stores.identity
    assert await store.account(alice.id) == alice and await store.account_of("bob@example.com") == bob
    assert await store.account("acct_none") is None and await store.account_of("dora@example.com") is None
    assert list(await store.accounts(2)) == [alice, bob]
    assert list(await store.accounts(2, bob.id)) == [carol] and not await store.accounts(2, carol.id)


async def test_an_email_address_has_one_account(stores):
    """Also when many ask at the same time; nothing of the refused ones is in the audit log."""
    made = [new_account("Alice@Example.com", "a", ("owner",), NOW) for _ in range(5)]
    adding = (stores.identity.add_account(account, created(account, BY)) for account in made)
    results = await asyncio.gather(*adding, return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["Conflict"] * 4 + ["NoneType"]
    assert await stores.actions() == ["account.created"]


async def test_a_change_and_its_entry_are_one(stores):
    """What `decide` raises undoes everything; an unknown account is told."""
    alice = await an_account(stores)
    store = stores.identity

    def fail(account):
        raise Conflict("no")

    with pytest.raises(Conflict):
        await store.change_account(alice.id, fail, NOW)
    with pytest.raises(NotFound):
        await store.change_account("acct_none", fail, NOW)
    changed = await store.change_account(alice.id, lambda a: with_roles(a, ["operator"], BY, NOW), NOW)
    assert changed == replace(alice, roles=frozenset({"operator"})) == await store.account(alice.id)
    assert await stores.actions() == ["account.created", "account.roles_changed"]
    [logged] = await stores.audit.page(1)
    assert logged.entry.detail == {"before": ["developer", "owner"], "after": ["operator"]}


async def test_changes_of_one_account_take_turns(stores):
    """Twenty that each add to what is there lose none."""
    alice = await an_account(stores)

    def longer(account):
        return replace(with_roles(account, account.roles, BY, NOW), account=replace(account, name=account.name + "x"))

    await asyncio.gather(*(stores.identity.change_account(alice.id, longer, NOW) for _ in range(20)))
    assert (await stores.identity.account(alice.id)).name == "Alice – ü" + "x" * 20


async def test_a_renewed_hash_is_of_the_same_password(stores):
    """It is not written over a password that was set meanwhile."""
    alice = await an_account(stores)
    await stores.identity.renew_password(alice.id, "$argon2id$x", "$argon2id$y")
    await stores.identity.renew_password(alice.id, "$argon2id$x", "$argon2id$z")
    assert (await stores.identity.account(alice.id)).password == "$argon2id$y"


async def test_disabling_ends_sessions_keys_and_nodes(stores):
    """All in one, those of nobody else, each with its entry; what ended before keeps its time."""
    alice, bob = await an_account(stores), await an_account(stores, "bob@example.com")
    store = stores.identity
    digests = {}
    for account in (alice, bob):
        new = new_session(account.id, "test", NOW, 1000)
        await store.add_session(new, 10, entry())
        digests[account.id] = new.digest
        await stores.keys.add(new_key(Terms(name="k"), NOW, account.id))
    nodes = [await a_node(stores, alice), await a_node(stores, alice), await a_node(stores, bob)]
    await store.change_node(nodes[1].id, lambda node: NodeChange(node=revoke(node, NOW + 1), entry=entry()))
    keys, seen = (await stores.keys.changes(0)).revision, (await store.node_changes(0)).revision
    await store.change_account(alice.id, lambda a: advance(a, AccountEvent.DISABLE, BY, NOW + 7), NOW + 7)

    assert (await store.account(alice.id)).state is AccountState.DISABLED
    [session, _], [other, _] = await store.session(digests[alice.id]), await store.session(digests[bob.id])
    assert session.ended_at == NOW + 7 and other.ended_at is None
    [key] = (await stores.keys.changes(keys)).keys.values()
    assert key.account == alice.id and key.revoked_at == NOW + 7
    changed = (await store.node_changes(seen)).nodes
    assert set(changed) == {nodes[0].id} and changed[nodes[0].id].state is NodeState.REVOKED
    ended = [logged.entry for logged in await stores.audit.page(3)]
    assert {each.action for each in ended} == {"account.disabled", "key.revoked", "node.revoked"}
    assert {each.actor for each in ended} == {BY}


async def test_no_key_and_no_session_for_a_disabled_account(stores):
    """Nor for one that does not exist, nor a key for one that is no developer's. The store itself refuses, so that none
    slips in while the account is changed.
    """
    alice, owner = await an_account(stores), await an_account(stores, "o@example.com", ("owner",))
    await stores.identity.change_account(alice.id, lambda a: advance(a, AccountEvent.DISABLE, BY, NOW), NOW)
    for account, error in ((alice.id, Forbidden), (owner.id, Forbidden), ("acct_none", NotFound)):
        with pytest.raises(error):
            await stores.keys.add(new_key(Terms(name="k"), NOW, account))
    for account in (alice.id, "acct_none"):
        with pytest.raises(WrongCredentials):
            await stores.identity.add_session(new_session(account, "t", NOW, 10), 10, entry())
    assert not (await stores.keys.changes(0)).keys


async def test_sessions(stores):
    """Found by digest with their account, listed while active, ended once, only by their own account."""
    alice, bob = await an_account(stores), await an_account(stores, "bob@example.com")
    store = stores.identity
    first, second = (new_session(alice.id, f"client {at}", at, 100) for at in (NOW, NOW + 1))
    for new in (first, second):
        await store.add_session(new, 10, entry("session.began", new.session.id))
    assert await store.session(first.digest) == (first.session, alice)
    assert await store.session(b"x" * 32) is None
    assert list(await store.sessions(alice.id, NOW + 2)) == [second.session, first.session]
    assert list(await store.sessions(alice.id, NOW + 100)) == [second.session]
    assert await store.end_session(bob.id, first.session.id, NOW + 3, entry()) is None
    ended = await store.end_session(alice.id, first.session.id, NOW + 3, entry("session.ended"))
    assert ended.state(NOW + 3) is SessionState.ENDED
    assert await store.end_session(alice.id, first.session.id, NOW + 4, entry("session.ended")) == ended
    assert (await stores.actions()).count("session.ended") == 1
    assert list(await store.sessions(alice.id, NOW + 3)) == [second.session]


async def test_sessions_are_bounded_and_forgotten(stores):
    """A new one beyond the most ends the oldest; a day after its expiry one is gone."""
    alice = await an_account(stores)
    store = stores.identity
    made = [new_session(alice.id, "t", NOW + number, 1000) for number in range(4)]
    for new in made:
        await store.add_session(new, 3, entry())
    assert list(await store.sessions(alice.id, NOW + 5)) == [new.session for new in reversed(made[1:])]
    late = new_session(alice.id, "t", NOW + 1000 + KEEP_SESSIONS_S, 1000)
    await store.add_session(late, 3, entry())
    assert await store.session(made[0].digest) is None and await store.session(made[1].digest) is not None


async def test_device_codes(stores):
    """By digest or user code, changed as a whole, forgotten an hour after their end, bounded in number."""
    alice = await an_account(stores)
    store = stores.identity
    key = NodeKey.generate().public
    new = new_grant(key, "tower", "https://x/device", "::1", NOW, lasts_s=900, interval_s=5)
    assert await store.add_grant(new, 1)
    with pytest.raises(Unavailable):
        await store.add_grant(new_grant(key, "b", "p", "a", NOW + 1, lasts_s=900, interval_s=5), 1)
    assert await store.grant(new.grant.user_code) == new.grant and await store.grant("XXXX-XXXX") is None
    same_code = replace(new, grant=replace(new.grant, created_at=NOW + 1), device_code="other")
    assert not await store.add_grant(same_code, 5)

    views = []

    def approve(view):
        views.append(view)
        return GrantChange(grant=decide(view.grant, GrantEvent.APPROVE, alice.id, NOW + 2), entry=entry("approved"))

    approved = await store.change_grant(new.grant.user_code, approve)
    assert approved.state is GrantState.APPROVED and views[0].account is None and views[0].node is None
    await store.change_grant(new.digest, lambda view: (views.append(view), GrantChange(grant=view.grant))[1])
    assert views[1].account == alice and views[1].grant == approved
    assert await store.change_grant(b"x" * 32, approve) is None and await store.change_grant("x", approve) is None
    late = new_grant(key, "b", "p", "a", NOW + 900 + KEEP_GRANTS_S, lasts_s=900, interval_s=5)
    assert await store.add_grant(late, 1)
    assert await store.grant(new.grant.user_code) is None


async def test_nodes(stores):
    """Listed by owner, page by page; changes are told by revision; a change and its entry are one."""
    alice, bob = await an_account(stores), await an_account(stores, "bob@example.com")
    mine = sorted([await a_node(stores, alice) for _ in range(3)], key=lambda node: node.id)
    other = await a_node(stores, bob)
    store = stores.identity
    assert list(await store.nodes(10, owner=alice.id)) == mine
    assert list(await store.nodes(2, mine[0].id, alice.id)) == mine[1:]
    assert {node.id for node in await store.nodes(10)} == {node.id for node in [*mine, other]}
    before = await store.node_changes(0)
    assert set(before.nodes) == {node.id for node in [*mine, other]}
    assert not (await store.node_changes(before.revision)).nodes
    renamed = await store.change_node(
        other.id, lambda node: NodeChange(node=replace(node, name="new"), entry=entry("node.renamed"))
    )
    assert renamed.name == "new" and dict((await store.node_changes(before.revision)).nodes) == {other.id: renamed}
    with pytest.raises(NotFound):
        await store.change_node("none", lambda node: NodeChange(node=node, entry=entry()))


async def test_a_node_is_revoked_once(stores):
    """Of many at the same time one does it, with one entry."""
    alice = await an_account(stores)
    node = await a_node(stores, alice)

    def end(found):
        return NodeChange(node=revoke(found, NOW + 1), entry=entry("node.revoked", node.id))

    revoking = (stores.identity.change_node(node.id, end) for _ in range(5))
    results = await asyncio.gather(*revoking, return_exceptions=True)
    assert sum(isinstance(result, Node) for result in results) == 1
    assert (await stores.actions()).count("node.revoked") == 1


async def test_the_audit_log_is_read_in_pages(stores):
    """Newest first, by number, by subject; details come back as they were."""
    for number in range(5):
        await an_account(stores, f"a{number}@example.com", at=NOW + number)
    pages, before = [], None
    while page := await stores.audit.page(2, before):
        pages.append([logged.entry.at - NOW for logged in page])
        before = page[-1].seq
    assert pages == [[4, 3], [2, 1], [0]]
    last = (await stores.audit.page(1))[0].entry
    assert last.detail == {"email": "a4@example.com", "roles": ["developer", "owner"]} and last.actor == BY
    assert [logged.entry for logged in await stores.audit.page(9, subject=last.subject)] == [last]


async def test_nobody_changes_the_audit_log(database_url):
    """The database itself refuses."""
    database = Database(database_url)
    await database.open()
    stores = Stores(SqlAccounts(database), SqlIdentity(database), SqlAudit(database))
    await an_account(stores)
    for statement in (update(AUDIT).values(actor="nobody"), delete(AUDIT)):
        with pytest.raises(IntegrityError, match="never changed"):
            await database.write(lambda connection, work=statement: connection.execute(work))
    assert await stores.actions() == ["account.created"]
    await database.close()
