"""What identity needs from a store. Both adapters pass the same tests (tests/cloud/api/identity)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cloud.api.audit.entry import Entry
from cloud.api.identity.account import Account, AccountChange
from cloud.api.identity.grant import Grant, NewGrant
from cloud.api.identity.node import Node
from cloud.api.identity.session import NewSession, Session
from shared.ids import AccountId, NodeId


@dataclass(frozen=True, slots=True)
class GrantView:
    """A grant, who decided on it, and what is known of the key that it is for."""

    grant: Grant
    account: Account | None
    node: Node | None


@dataclass(frozen=True, kw_only=True, slots=True)
class GrantChange:
    """What becomes of a grant, and of the node if it is paired with that: applied as a whole."""

    grant: Grant
    node: Node | None = None
    entry: Entry | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeChange:
    node: Node
    entry: Entry


@dataclass(frozen=True, slots=True)
class NodeChanges:
    """Nodes that changed, and the revision that they bring the reader to."""

    revision: int
    nodes: Mapping[NodeId, Node]


class IdentityStore(Protocol):
    """Every method may raise `shared.errors.Unavailable`; nothing was done then, or all of it.

    A `decide` is called with the present state, which nobody else changes meanwhile; what it raises undoes everything.
    It must not block, and may be called again when the store has to begin anew.
    """

    # --- accounts --------------------------------------------------------------------------------

    async def add_account(self, account: Account, entry: Entry) -> None:
        """Raises `Conflict` when the e-mail address has an account."""
        ...

    async def account(self, account: AccountId) -> Account | None: ...

    async def account_of(self, email: str) -> Account | None:
        """`email` in the form of `email_of`."""
        ...

    async def accounts(self, limit: int, after: AccountId | None = None) -> Sequence[Account]:
        """In the order of their creation, those behind `after`."""
        ...

    async def change_account(self, account: AccountId, decide: Callable[[Account], AccountChange], at: int) -> Account:
        """Raises `NotFound`. What ends with the change (sessions, keys, nodes) ends in the same transaction."""
        ...

    async def renew_password(self, account: AccountId, old: str, new: str) -> None:
        """The same password with another hash; nothing when the account has another password by now."""
        ...

    # --- sessions --------------------------------------------------------------------------------

    async def add_session(self, new: NewSession, most: int, entry: Entry) -> None:
        """Ends the oldest ones of the account beyond `most`, and forgets those that expired a day ago or more. Raises
        `Conflict` when the account is not active.
        """
        ...

    async def session(self, digest: bytes) -> tuple[Session, Account] | None: ...

    async def sessions(self, account: AccountId, now: float) -> Sequence[Session]:
        """Active ones, newest first."""
        ...

    async def end_session(self, account: AccountId, session: str, at: int, entry: Entry) -> Session | None:
        """None when the account has no such session; one that is over already is given as it is, without an entry."""
        ...

    # --- device codes ----------------------------------------------------------------------------

    async def add_grant(self, new: NewGrant, most: int) -> bool:
        """False when the user code is taken. Raises `Unavailable` when `most` codes are pending already. Forgets codes
        that are over for an hour or more.
        """
        ...

    async def grant(self, user_code: str) -> Grant | None: ...

    async def change_grant(self, key: bytes | str, decide: Callable[[GrantView], GrantChange]) -> Grant | None:
        """By the device code's digest or the user code; none when there is no such code."""
        ...

    # --- nodes -----------------------------------------------------------------------------------

    async def nodes(self, limit: int, after: NodeId | None = None, owner: AccountId | None = None) -> Sequence[Node]:
        """In the order of their ids, those behind `after`; all, or those of one owner."""
        ...

    async def change_node(self, node: NodeId, decide: Callable[[Node], NodeChange]) -> Node:
        """Raises `NotFound`."""
        ...

    async def node_changes(self, since: int) -> NodeChanges:
        """Nodes paired, renamed or revoked after revision `since`; 0 gives all."""
        ...
