"""Questions to what was recorded. Both adapters pass the same tests (tests/cloud/api/reports)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cloud.api.accounts.keys import KeyId
from cloud.api.accounts.money import Nano
from cloud.api.payouts.chain import NodeClass
from shared.ids import AccountId, NodeId

DAY_S = 86400


@dataclass(frozen=True, kw_only=True, slots=True)
class Earned:
    """What receipts of some time come to. Energy is the nodes' own word; none where no node has a counter."""

    amount: Nano
    receipts: int
    drafted: int
    accepted: int
    marginal: int
    millijoules: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Used:
    """Requests of one key, for one model, on one day; tokens by the engine's count."""

    day: int
    """Its beginning, seconds since 1970, UTC."""
    key: KeyId
    model: str
    requests: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost: Nano


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """One request of an account, and who saw its prompt beside gateway and verifier."""

    request_id: str
    key: KeyId
    at: int
    model: str
    outcome: str
    completion_tokens: int
    cost: Nano
    nodes: Mapping[NodeClass, int]
    """Nodes whose drafts were checked, each counted once. Empty: the verifier alone."""
    accepted: int
    """Of the output tokens, those that a node had drafted."""


class Reports(Protocol):
    """Every method may raise `shared.errors.Unavailable`. Times are seconds since 1970, `until` not among them."""

    async def earned_by_day(self, owner: AccountId, since: int, until: int) -> Mapping[int, Earned]:
        """By the beginning of the day, UTC; days without receipts are not there."""
        ...

    async def earned_by_node(
        self, since: int, until: int, owner: AccountId | None = None
    ) -> Mapping[NodeId, Earned]: ...

    async def used(self, account: AccountId, since: int, until: int) -> Sequence[Used]:
        """By day, key and model, in this order."""
        ...

    async def seen(self, account: AccountId, limit: int, before: int | None = None) -> Sequence[Seen]:
        """An account's latest requests, newest first; those before a time."""
        ...

    async def seen_one(self, account: AccountId, request_id: str) -> Seen | None:
        """None when the account made no such request."""
        ...

    async def tariff(self, owner: AccountId) -> Nano | None:
        """What a kilowatt-hour costs the owner, as they have said."""
        ...

    async def set_tariff(self, owner: AccountId, tariff: Nano) -> None: ...
