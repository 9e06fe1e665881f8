"""Pairing of nodes with accounts, by device code (RFC 8628), and what their owners do with them."""

import contextlib
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, assert_never

from cloud.api.audit.entry import Actor, Entry, actor_node
from cloud.api.identity.attempts import Attempts, network_of
from cloud.api.identity.grant import (
    SLOWER_S,
    Answer,
    Grant,
    GrantEvent,
    GrantState,
    NewGrant,
    at,
    decide,
    digest_of,
    new_grant,
    poll,
    read_user_code,
)
from cloud.api.identity.node import NAME_MAX, Node, NodeState, pair, revoke
from cloud.api.identity.oauth import OAuthError
from cloud.api.identity.ports import GrantChange, GrantView, IdentityStore, NodeChange
from cloud.api.identity.ring import NodeRing
from cloud.api.identity.settings import IdentitySettings
from shared.errors import LocalMisuse, NexusError, NotFound, ProofFailed, Unavailable
from shared.ids import AccountId, NodeId
from shared.keys import verify_pairing

TRIES = 5
"""User codes that are tried when one is taken: with 20⁸ of them, one is enough."""


class Pairings:
    """`clock` gives seconds since 1970, `monotonic` those by which attempts come back."""

    def __init__(
        self,
        store: IdentityStore,
        ring: NodeRing,
        settings: IdentitySettings,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._ring = ring
        self._settings = settings
        self._clock = clock
        window_s = settings.attempts_window_s
        self._asked = Attempts(settings.attempts_per_address, window_s, monotonic, "codes asked for")
        self._unknown = Attempts(settings.attempts_per_address, window_s, monotonic, "unknown device codes")
        self._typed = Attempts(settings.attempts_per_account, window_s, monotonic, "codes that are none")

    async def ask(self, public_key: str, name: str, *, page: str, address: str) -> NewGrant:
        """A device code for the node with this key, 64 hexadecimal digits. Raises `OAuthError`, `RateLimited`."""
        if not re.fullmatch(r"[0-9a-fA-F]{64}", public_key):
            raise OAuthError("invalid_request", "`public_key` must be an Ed25519 public key of 64 hexadecimal digits.")
        self._asked.take(network_of(address))
        for _ in range(TRIES):
            new = new_grant(
                bytes.fromhex(public_key),
                node_name(name),
                page,
                address,
                self._clock(),
                lasts_s=self._settings.pairing_s,
                interval_s=self._settings.pairing_interval_s,
            )
            if await self._store.add_grant(new, self._settings.pairings):
                return new
        raise Unavailable("No code is free at the moment. Try again shortly.")

    async def redeem(self, device_code: str, signature: bytes, *, address: str) -> Node:
        """The node, once its owner has approved it and it has proved its key.

        Raises `OAuthError` with the code that RFC 8628, 3.5, has for what the node has to do next.
        """
        network = network_of(address)
        self._unknown.take(network)
        heard: list[OAuthError | Node] = []
        found = await self._store.change_grant(
            digest_of(device_code), lambda view: self._hear(view, device_code, signature, heard)
        )
        if found is None:
            raise OAuthError("invalid_grant", "This device code is not known. Ask for a new one.")
        self._unknown.give_back(network)
        answer = heard[-1]
        if isinstance(answer, OAuthError):
            raise answer
        await self._tell()
        return answer

    def _hear(self, view: GrantView, device_code: str, signature: bytes, heard: list[OAuthError | Node]) -> GrantChange:
        grant = view.grant
        try:
            verify_pairing(grant.public_key, signature, device_code, grant.user_code, grant.page)
        except ProofFailed:
            heard.append(OAuthError("invalid_grant", "The signature does not fit the key and the code."))
            return GrantChange(grant=grant)
        now = self._clock()
        polled, answer = poll(grant, now)
        if answer != "approved":
            heard.append(_not_yet(answer))
            return GrantChange(grant=polled)
        if view.account is None or not view.account.may("owner"):
            refused = OAuthError("access_denied", "The account that approved this node may have none.")
            heard.append(refused)
            return GrantChange(grant=replace(polled, state=GrantState.DENIED))
        wanted = Node(
            id=grant.node, public_key=grant.public_key, owner=view.account.id, name=grant.name, paired_at=int(now)
        )
        if grant.state is GrantState.PAIRED and view.node is not None and view.node.state is NodeState.PAIRED:
            wanted = replace(wanted, name=view.node.name)  # it may have been renamed since
        try:
            node = pair(view.node, wanted)
        except NexusError as error:
            heard.append(OAuthError("access_denied", error.message))
            return GrantChange(grant=replace(polled, state=GrantState.DENIED))
        heard.append(node)
        detail = {"owner": node.owner, "name": node.name}
        entry = Entry(at=int(now), actor=actor_node(node.id), action="node.paired", subject=node.id, detail=detail)
        return GrantChange(grant=polled, node=node, entry=entry if node != view.node else None)

    # --- for the person ----------------------------------------------------------------------------

    async def look_up(self, user_code: str, account: AccountId) -> Grant:
        """What this code would approve. Raises `NotFound`, and `RateLimited` for who tries codes out."""
        self._typed.take(account)
        code = read_user_code(user_code)
        grant = None if code is None else await self._store.grant(code)
        if grant is None:
            raise _no_code()
        self._typed.give_back(account)
        return at(grant, self._clock())

    async def decide(
        self, user_code: str, event: Literal[GrantEvent.APPROVE, GrantEvent.DENY], account: AccountId
    ) -> Grant:
        """The account approves the node, or denies it. Raises as `look_up` does, and `Conflict` when it is too late."""
        self._typed.take(account)
        code = read_user_code(user_code)
        now = self._clock()

        def change(view: GrantView) -> GrantChange:
            after = decide(view.grant, event, account, now)
            if after == view.grant:
                return GrantChange(grant=after)
            verb = "approved" if event is GrantEvent.APPROVE else "denied"
            detail = {"name": after.name}
            entry = Entry(
                at=int(now), actor=Actor(account), action=f"pairing.{verb}", subject=after.node, detail=detail
            )
            return GrantChange(grant=after, entry=entry)

        grant = None if code is None else await self._store.change_grant(code, change)
        if grant is None:
            raise _no_code()
        self._typed.give_back(account)
        return grant

    async def nodes(self, limit: int, after: NodeId | None = None, owner: AccountId | None = None) -> Sequence[Node]:
        return await self._store.nodes(limit, after, owner)

    async def rename(self, node: NodeId, name: str, by: Actor, owner: AccountId | None = None) -> Node:
        """Raises `NotFound`, also when the node is not that owner's."""

        def change(found: Node) -> NodeChange:
            _check_owner(found, owner)
            detail = {"before": found.name, "after": name}
            entry = Entry(at=int(self._clock()), actor=by, action="node.renamed", subject=node, detail=detail)
            return NodeChange(node=replace(found, name=name), entry=entry)

        return await self._change(node, change)

    async def revoke(self, node: NodeId, by: Actor, owner: AccountId | None = None) -> Node:
        """It is disconnected at once here, and within a second by other gateways. Raises `NotFound`, `Conflict`."""

        def change(found: Node) -> NodeChange:
            _check_owner(found, owner)
            now = self._clock()
            entry = Entry(at=int(now), actor=by, action="node.revoked", subject=node, detail={"account": found.owner})
            return NodeChange(node=revoke(found, now), entry=entry)

        return await self._change(node, change)

    async def _change(self, node: NodeId, change: Callable[[Node], NodeChange]) -> Node:
        changed = await self._store.change_node(node, change)
        await self._tell()
        return changed

    async def _tell(self) -> None:
        """The change is made: if the ring cannot read it now, it does so by itself, soon."""
        with contextlib.suppress(Unavailable):
            await self._ring.refresh()


def node_name(text: str) -> str:
    """What a node calls itself, as it can be shown: it is the node's own, of any length and any characters."""
    shown = "".join(character for character in text if character.isprintable()).strip()[:NAME_MAX]
    return shown or "unnamed node"


def _not_yet(answer: Answer) -> OAuthError:
    match answer:
        case "pending":
            return OAuthError("authorization_pending", "The owner has not decided yet. Ask again after the interval.")
        case "slow_down":
            return OAuthError("slow_down", f"Asked too soon: wait {SLOWER_S} s longer between questions from now on.")
        case "denied":
            return OAuthError("access_denied", "The owner has denied this node.")
        case "expired":
            return OAuthError("expired_token", "The code has expired. Ask for a new one.")
        case "approved":
            raise LocalMisuse("An approved code is no error.")
        case _:
            assert_never(answer)


def _check_owner(node: Node, owner: AccountId | None) -> None:
    if owner is not None and node.owner != owner:
        raise NotFound("There is no node with this id.")


def _no_code() -> NotFound:
    return NotFound("There is no such code. Check it on the machine that shows it.", param="user_code")
