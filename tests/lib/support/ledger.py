"""What tests of money have in common: a clock, and settlements with few fields."""

import itertools
from dataclasses import dataclass, field

from cloud.api.accounts.charges import Charge
from cloud.api.accounts.keys import ApiKey, KeyId, Terms
from cloud.api.accounts.money import Nano, Pico
from cloud.api.ledger.audit import Audit
from cloud.api.ledger.places import Place
from cloud.api.ledger.reservations import Reservation
from cloud.api.ledger.settlement import NodeShare, NodeWork, Settlement
from shared.ids import AccountId, GatewayId, ModelName, NodeId

NOW = 1_796_000_000
"""2026-11-30, 06:13 UTC."""
DAY_S = 86400
ALICE, BOB, OWNER = AccountId("acct_alice"), AccountId("acct_bob"), AccountId("acct_owner")


@dataclass
class Clock:
    """Seconds since 1970."""

    now: float = NOW

    def __call__(self) -> float:
        return self.now


@dataclass
class Maker:
    """Names requests in turn."""

    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def name(self) -> str:
        return f"req_{next(self.numbers)}"

    def reservation(
        self, amount: int, account: AccountId = ALICE, name: str | None = None, expires_at: int = NOW + 60
    ) -> Reservation:
        return Reservation(
            request_id=name or self.name(),
            account=account,
            amount=Nano(amount),
            gateway=GatewayId("gw_1"),
            expires_at=expires_at,
        )

    def charge(self, cost: int, name: str | None = None, key: str = "key_a", at: int = NOW) -> Charge:
        return Charge(
            request_id=name or self.name(),
            key_id=KeyId(key),
            at=at,
            model="tiny",
            path="/v1/completions",
            streamed=False,
            outcome="answered",
            prompt_tokens=3,
            cached_tokens=1,
            completion_tokens=2,
            cost=Nano(cost),
        )

    def settlement(
        self,
        cost: int,
        account: AccountId | None = ALICE,
        name: str | None = None,
        shares: tuple[tuple[AccountId, int], ...] = (),
        at: int = NOW,
    ) -> Settlement:
        return Settlement(
            charge=self.charge(cost, name, at=at),
            account=account,
            target=ModelName("tiny"),
            price_version="v1",
            shares=tuple(self.share(owner, amount) for owner, amount in shares),
        )

    def share(self, owner: AccountId, amount: int) -> NodeShare:
        work = NodeWork(node=NodeId("ab" * 16), drafted=4, accepted=3, marginal=2, first=5, last=9, joules=1.5)
        return NodeShare(work=work, owner=owner, price=Pico(1000), price_version="s1", amount=Nano(amount))


def key(account: AccountId | None = ALICE, budget: int | None = None, name: str = "key_a") -> ApiKey:
    terms = Terms(name="a", monthly_budget=None if budget is None else Nano(budget))
    return ApiKey(id=KeyId(name), start="nx_", terms=terms, created_at=0, account=account)


def check(audit: Audit) -> None:
    """The books reconcile to zero."""
    assert audit.problems() == []


def amounts(balances: "dict[Place, Nano]") -> dict[str, int]:
    """Without what is zero."""
    return {str(place): int(amount) for place, amount in balances.items() if amount}
