"""Answers from what this process has recorded."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from cloud.api.accounts.charges import Charge
from cloud.api.accounts.keys import KeyId
from cloud.api.accounts.memory import CHARGES_KEPT
from cloud.api.accounts.money import Nano
from cloud.api.payouts.chain import NodeClass, Written
from cloud.api.payouts.receipt_store import MemoryReceipts
from cloud.api.reports.ports import DAY_S, Earned, Seen, Used
from shared.ids import AccountId, NodeId


class ChargesOfKeys(Protocol):
    """Part of an `AccountStore`."""

    async def charges(self, key: KeyId, limit: int) -> Sequence[Charge]: ...


class KeysOfAccount(Protocol):
    """Part of `cloud.api.accounts.accounts.Accounts`."""

    def __call__(self, account: AccountId) -> Iterable[KeyId]: ...


class MemoryReports:
    """`Reports`."""

    def __init__(self, receipts: MemoryReceipts, charges: ChargesOfKeys, keys: KeysOfAccount) -> None:
        self._receipts = receipts
        self._charges = charges
        self._keys = keys
        self._tariffs: dict[AccountId, Nano] = {}

    async def earned_by_day(self, owner: AccountId, since: int, until: int) -> Mapping[int, Earned]:
        found: dict[int, list[Written]] = defaultdict(list)
        for each in self._between(since, until):
            if each.signed.receipt.owner == owner:
                found[each.signed.receipt.at // DAY_S * DAY_S].append(each)
        return {day: _sum(found[day]) for day in sorted(found)}

    async def earned_by_node(self, since: int, until: int, owner: AccountId | None = None) -> Mapping[NodeId, Earned]:
        found: dict[NodeId, list[Written]] = defaultdict(list)
        for each in self._between(since, until):
            receipt = each.signed.receipt
            if receipt.node and owner in (None, receipt.owner):
                found[NodeId(receipt.node)].append(each)
        return {node: _sum(found[node]) for node in sorted(found)}

    async def used(self, account: AccountId, since: int, until: int) -> Sequence[Used]:
        found: dict[tuple[int, KeyId, str], list[Charge]] = defaultdict(list)
        for charge in await self._all(account):
            if since <= charge.at < until:
                found[charge.at // DAY_S * DAY_S, charge.key_id, charge.model].append(charge)
        return [
            Used(
                day=day,
                key=key,
                model=model,
                requests=len(charges),
                prompt_tokens=sum(each.prompt_tokens for each in charges),
                cached_tokens=sum(each.cached_tokens for each in charges),
                completion_tokens=sum(each.completion_tokens for each in charges),
                cost=Nano(sum(each.cost for each in charges)),
            )
            for (day, key, model), charges in sorted(found.items())
        ]

    async def seen(self, account: AccountId, limit: int, before: int | None = None) -> Sequence[Seen]:
        charges = [each for each in await self._all(account) if before is None or each.at < before]
        return [self._seen(each) for each in charges[:limit]]

    async def seen_one(self, account: AccountId, request_id: str) -> Seen | None:
        return next((self._seen(each) for each in await self._all(account) if each.request_id == request_id), None)

    async def tariff(self, owner: AccountId) -> Nano | None:
        return self._tariffs.get(owner)

    async def set_tariff(self, owner: AccountId, tariff: Nano) -> None:
        self._tariffs[owner] = tariff

    def _between(self, since: int, until: int) -> Iterable[Written]:
        return (each for each in self._receipts.written if since <= each.signed.receipt.at < until)

    async def _all(self, account: AccountId) -> list[Charge]:
        """Newest first."""
        found = [each for key in self._keys(account) for each in await self._charges.charges(key, CHARGES_KEPT)]
        return sorted(found, key=lambda each: (-each.at, each.request_id))

    def _seen(self, charge: Charge) -> Seen:
        nodes: Counter[NodeClass] = Counter()
        accepted = 0
        for each in self._receipts.written:
            if each.signed.receipt.request == charge.request_id and each.node_class is not None:
                nodes[each.node_class] += 1
                accepted += each.signed.receipt.accepted
        return Seen(
            request_id=charge.request_id,
            key=charge.key_id,
            at=charge.at,
            model=charge.model,
            outcome=charge.outcome,
            completion_tokens=charge.completion_tokens,
            cost=charge.cost,
            nodes=dict(nodes),
            accepted=accepted,
        )


def _sum(written: Sequence[Written]) -> Earned:
    receipts = [each.signed.receipt for each in written]
    joules = [each.millijoules for each in written if each.millijoules is not None]
    return Earned(
        amount=Nano(sum(each.amount for each in receipts)),
        receipts=len(receipts),
        drafted=sum(each.drafted for each in receipts),
        accepted=sum(each.accepted for each in receipts),
        marginal=sum(each.marginal for each in receipts),
        millijoules=sum(joules) if joules else None,
    )
