"""Keeps identity in this process only, for gateways without a database."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from cloud.api.accounts.memory import MemoryAccounts
from cloud.api.audit.entry import Entry
from cloud.api.audit.memory import MemoryAudit
from cloud.api.identity.account import Account, AccountChange
from cloud.api.identity.grant import Grant, GrantState, NewGrant
from cloud.api.identity.node import Node, revoke
from cloud.api.identity.ports import GrantChange, GrantView, NodeChange, NodeChanges
from cloud.api.identity.rules import (
    KEEP_GRANTS_S,
    KEEP_SESSIONS_S,
    check_holder,
    check_sign_in,
    email_taken,
    ended_with,
    no_account,
    no_node,
    too_many_codes,
)
from cloud.api.identity.session import NewSession, Session, SessionState
from shared.ids import AccountId, NodeId


class MemoryIdentity:
    """An `IdentityStore`. `keys` are those that end with their account."""

    def __init__(self, keys: MemoryAccounts, audit: MemoryAudit) -> None:
        self._keys = keys
        self._audit = audit
        self._accounts: dict[AccountId, Account] = {}
        self._sessions: dict[bytes, Session] = {}
        self._grants: dict[bytes, Grant] = {}
        self._nodes: dict[NodeId, tuple[Node, int]] = {}
        self._revision = 0
        keys.check_holder = lambda account: check_holder(self._accounts.get(account))

    # --- accounts --------------------------------------------------------------------------------

    async def add_account(self, account: Account, entry: Entry) -> None:
        if any(known.email == account.email for known in self._accounts.values()):
            raise email_taken()
        self._accounts[account.id] = account
        self._audit.append(entry)

    async def account(self, account: AccountId) -> Account | None:
        return self._accounts.get(account)

    async def account_of(self, email: str) -> Account | None:
        return next((account for account in self._accounts.values() if account.email == email), None)

    async def accounts(self, limit: int, after: AccountId | None = None) -> Sequence[Account]:
        ordered = sorted(self._accounts.values(), key=lambda account: (account.created_at, account.id))
        if after is not None:
            begin = next((place for place, account in enumerate(ordered) if account.id == after), len(ordered))
            ordered = ordered[begin + 1 :]
        return ordered[:limit]

    async def change_account(self, account: AccountId, decide: Callable[[Account], AccountChange], at: int) -> Account:
        if account not in self._accounts:
            raise no_account()
        change = decide(self._accounts[account])
        self._accounts[account] = change.account
        self._audit.append(change.entry)
        if "sessions" in change.ends:
            for digest, session in self._sessions.items():
                if session.account == account and session.ended_at is None and session.id != change.keep:
                    self._sessions[digest] = replace(session, ended_at=at)
        by = change.entry.actor if change.entry else None
        if "keys" in change.ends:
            for key in self._keys.revoke_of(account, at):
                self._audit.append(ended_with(account, "key.revoked", key, by, at))
        if "nodes" in change.ends:
            for node in [node for node, _ in self._nodes.values() if node.owner == account and node.revoked_at is None]:
                self._put(revoke(node, at))
                self._audit.append(ended_with(account, "node.revoked", node.id, by, at))
        return change.account

    async def renew_password(self, account: AccountId, old: str, new: str) -> None:
        found = self._accounts.get(account)
        if found is not None and found.password == old:
            self._accounts[account] = replace(found, password=new)

    # --- sessions --------------------------------------------------------------------------------

    async def add_session(self, new: NewSession, most: int, entry: Entry) -> None:
        session = new.session
        check_sign_in(self._accounts.get(session.account))
        now = session.created_at
        self._sessions = {
            digest: old for digest, old in self._sessions.items() if old.expires_at > now - KEEP_SESSIONS_S
        }
        self._sessions[new.digest] = session
        mine = [(digest, old) for digest, old in self._sessions.items() if old.account == session.account]
        active = [(digest, old) for digest, old in mine if old.state(now) is SessionState.ACTIVE]
        for digest, old in active[: max(len(active) - most, 0)]:
            self._sessions[digest] = old.end(now)
        self._audit.append(entry)

    async def session(self, digest: bytes) -> tuple[Session, Account] | None:
        session = self._sessions.get(digest)
        return None if session is None else (session, self._accounts[session.account])

    async def sessions(self, account: AccountId, now: float) -> Sequence[Session]:
        mine = [session for session in self._sessions.values() if session.account == account]
        return [session for session in reversed(mine) if session.state(now) is SessionState.ACTIVE]

    async def end_session(self, account: AccountId, session: str, at: int, entry: Entry) -> Session | None:
        for digest, found in self._sessions.items():
            if found.id == session and found.account == account:
                if found.state(at) is SessionState.ACTIVE:
                    self._sessions[digest] = found = found.end(at)
                    self._audit.append(entry)
                return found
        return None

    # --- device codes ----------------------------------------------------------------------------

    async def add_grant(self, new: NewGrant, most: int) -> bool:
        now = new.grant.created_at
        self._grants = {digest: old for digest, old in self._grants.items() if old.expires_at > now - KEEP_GRANTS_S}
        pending = [old for old in self._grants.values() if old.state is GrantState.PENDING and old.expires_at > now]
        if len(pending) >= most:
            raise too_many_codes()
        if any(old.user_code == new.grant.user_code for old in self._grants.values()):
            return False
        self._grants[new.digest] = new.grant
        return True

    async def grant(self, user_code: str) -> Grant | None:
        return next((grant for grant in self._grants.values() if grant.user_code == user_code), None)

    async def change_grant(self, key: bytes | str, decide: Callable[[GrantView], GrantChange]) -> Grant | None:
        for digest, grant in self._grants.items():
            if key in (digest, grant.user_code):
                account = self._accounts[grant.account] if grant.account is not None else None
                node = self._nodes.get(grant.node)
                change = decide(GrantView(grant, account, node[0] if node else None))
                self._grants[digest] = change.grant
                if change.node is not None:
                    self._put(change.node)
                self._audit.append(change.entry)
                return change.grant
        return None

    # --- nodes -----------------------------------------------------------------------------------

    async def nodes(self, limit: int, after: NodeId | None = None, owner: AccountId | None = None) -> Sequence[Node]:
        ordered = sorted((node for node, _ in self._nodes.values()), key=lambda node: node.id)
        found = [node for node in ordered if owner in (None, node.owner) and (after is None or node.id > after)]
        return found[:limit]

    async def change_node(self, node: NodeId, decide: Callable[[Node], NodeChange]) -> Node:
        if node not in self._nodes:
            raise no_node()
        change = decide(self._nodes[node][0])
        self._put(change.node)
        self._audit.append(change.entry)
        return change.node

    async def node_changes(self, since: int) -> NodeChanges:
        newer = {id_: node for id_, (node, revision) in self._nodes.items() if revision > since}
        return NodeChanges(self._revision, newer)

    def _put(self, node: Node) -> None:
        self._revision += 1
        self._nodes[node.id] = node, self._revision
