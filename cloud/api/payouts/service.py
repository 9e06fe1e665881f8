"""Payouts over one store: asked for by owners, approved by two operators, sent by whichever rail.

A rail is called outside every transaction. Before it, the outbox says that a try has begun; after it, what came of
that. A gateway that dies in between leaves a row in doubt, and whoever finds it asks the rail what happened before it
tries again, under the same idempotency key.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

import structlog

from cloud.api.accounts.money import Nano, dollars, nano
from cloud.api.payouts.payout import (
    CENT,
    Approve,
    Cancel,
    Event,
    Fail,
    Pay,
    Payout,
    PayoutId,
    Postpone,
    Send,
    State,
    Try,
    advance,
    new_payout,
)
from cloud.api.payouts.ports import (
    Accepted,
    Delayed,
    Outcome,
    PayoutStore,
    Rail,
    Refused,
    Unknown,
)
from shared.errors import Conflict, InvalidInput, NexusError
from shared.ids import AccountId

TRY_S = 60
"""How long a try may take before another one may begin."""
RETRY_S = 60
"""Before the second try; then twice as long each time."""
LONGEST_RETRY_S = 6 * 3600
POLL_S = 5.0
AT_ONCE = 50
BY_HAND = "manual"
"""The rail of people: batches for a bank."""
TEN_DOLLARS = Nano(10 * 10**9)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class PayoutSettings:
    """`rail`: the one of new payouts."""

    rail: str = BY_HAND
    minimum: Nano = TEN_DOLLARS


class Payouts:
    """`rails` are the services that are set up."""

    def __init__(
        self,
        store: PayoutStore,
        rails: Mapping[str, Rail],
        settings: PayoutSettings,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store
        self.settings = settings
        self._rails = rails
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._lacking: set[str] = set()

    # --- owners ----------------------------------------------------------------------------------

    async def ask(self, owner: AccountId, amount: Nano | None = None) -> Payout:
        """Without `amount` all that is payable, in whole cents. Raises `InvalidInput` and `Conflict`."""
        destination = await self.store.destination(owner, self.settings.rail)
        if destination is None:
            raise Conflict("There is nowhere to pay to yet: set it with `PUT /v1/owner/destination`.")
        if amount is None:
            payable = (await self.store.balance(owner)).payable
            amount = Nano(payable - payable % CENT)
        if amount < self.settings.minimum:
            raise InvalidInput(
                f"A payout is at least ${dollars(self.settings.minimum)}; this would be ${dollars(amount)}.",
                param="amount",
            )
        return await self.store.add(new_payout(owner, amount, self.settings.rail, destination, self._now()))

    async def withdraw(self, owner: AccountId, id: PayoutId) -> Payout:
        """The owner thinks better of it. Raises `NotFound` and `Conflict`."""
        await self.of(owner, id)
        return await self._tell(id, Cancel(owner, "Withdrawn by its owner."))

    async def of(self, owner: AccountId, id: PayoutId) -> Payout:
        """Raises `NotFound` also for another's."""
        payout = await self.store.get(id)
        return payout if payout.owner == owner else await self.store.get(PayoutId(""))

    # --- operators -------------------------------------------------------------------------------

    async def approve(self, by: AccountId, id: PayoutId) -> Payout:
        """Raises `Forbidden` for the owner, and for whoever has approved it before."""
        rail = (await self.store.get(id)).rail
        return await self._tell(id, Approve(by, service=rail != BY_HAND))

    async def cancel(self, by: AccountId, id: PayoutId, reason: str) -> Payout:
        return await self._tell(id, Cancel(by, reason))

    async def batch(self) -> Sequence[Payout]:
        """Every approved payout that is made by hand, from now on sent, together under one new name. Asking for the
        same batch again (`store.find`) gives the same payouts: nothing depends on this answer arriving.
        """
        approved = await self.store.find(state=State.APPROVED)
        by_hand = [payout.id for payout in approved if payout.rail == BY_HAND]
        if not by_hand:
            raise Conflict("No payout waits to be made by hand.")
        name, now = f"batch_{secrets.token_hex(8)}", self._now()
        return await self.store.change_all(by_hand, lambda payout: advance(payout, Send(name, name), now), now)

    async def settle_batch(self, results: Mapping[PayoutId, Pay | Fail]) -> Sequence[Payout]:
        """What the bank says of payouts that were sent: all of it is taken, or nothing."""
        now = self._now()
        return await self.store.change_all(list(results), lambda each: advance(each, results[each.id], now), now)

    # --- rails -----------------------------------------------------------------------------------

    async def arrived(self, id: PayoutId, reference: str) -> Payout:
        """A rail says so by itself, perhaps before its answer to the call has come."""
        return await self._tell(id, Send(reference), Pay())

    async def came_back(self, id: PayoutId, reason: str) -> Payout:
        """A rail says that the payment was undone. Raises `Conflict` when it had arrived: a person has to see to it."""
        return await self._tell(id, Fail(reason))

    async def work(self) -> int:
        """Call rails for every payout whose time has come; gives how many there were."""
        due = await self.store.due(self._now(), AT_ONCE)
        for payout in due:
            await self._apart(payout, self._try)
        for rail in self._rails.values():
            for payout in await self.store.unsettled(rail.name, AT_ONCE):
                await self._apart(payout, self._look)
        return len(due)

    async def _apart(self, payout: Payout, work: Callable[[Payout], Awaitable[None]]) -> None:
        """One payout's trouble does not hold up the others."""
        try:
            await work(payout)
        except Exception as error:  # it stays where it is, for the next round and for operators to see
            unforeseen = None if isinstance(error, NexusError) else error
            log.error("a payout cannot be worked on", payout=payout.id, reason=str(error), exc_info=unforeseen)

    async def start(self) -> None:
        """Without services there is nothing to call."""
        if self._rails:
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """May be called twice."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        silent = False
        while True:
            try:
                await self.work()
                silent = False
            except Exception as error:  # whatever it is, nothing is lost, and it is tried again
                if not silent:
                    unforeseen = None if isinstance(error, NexusError) else error
                    log.warning("payouts cannot be worked on", exc_info=unforeseen)
                silent = True
            await asyncio.sleep(POLL_S)

    async def _try(self, payout: Payout) -> None:
        rail = self._rails.get(payout.rail)
        if rail is None:
            if payout.rail not in self._lacking:
                log.error("payouts wait for a rail that is not set up", payout=payout.id, rail=payout.rail)
                self._lacking.add(payout.rail)
            return
        claimed = await self._claim(payout)
        if claimed is None:
            return
        outcome = await rail.send(claimed, again=payout.errand is not None and payout.errand.in_doubt)
        await self._note(claimed, outcome)

    async def _claim(self, seen: Payout) -> Payout | None:
        """None when somebody else has been faster."""
        now = self._now()
        mine = False

        def claim(payout: Payout) -> Payout:
            nonlocal mine
            mine = payout == seen
            return advance(payout, Try(now + TRY_S), now) if mine else payout

        claimed = await self.store.change(seen.id, claim, now)
        return claimed if mine else None

    async def _note(self, tried: Payout, outcome: Outcome) -> None:
        """What a try came to. Only that it paid counts when another try has begun since."""
        match outcome:
            case Accepted(reference, arrived):
                await self._tell(tried.id, Send(reference), *((Pay(),) if arrived else ()))
                return
            case Refused(reason):
                event: Event = Fail(reason)
            case Delayed(trouble):
                event = Postpone(trouble, self._later(tried), known=True)
            case Unknown(trouble):
                event = Postpone(trouble, self._later(tried), known=False)
            case _:
                assert_never(outcome)
        if isinstance(outcome, Delayed | Unknown):
            log.warning("a payout was not made yet", payout=tried.id, trouble=outcome.trouble)
        now = self._now()

        def note(payout: Payout) -> Payout:
            return advance(payout, event, now) if payout.errand == tried.errand else payout

        await self.store.change(tried.id, note, now)

    async def _look(self, payout: Payout) -> None:
        match await self._rails[payout.rail].look(payout):
            case Accepted(reference, True):
                await self._tell(payout.id, Pay(reference))
            case Refused(reason):
                await self._tell(payout.id, Fail(reason))
            case Accepted() | Unknown():
                pass

    async def _tell(self, id: PayoutId, *events: Event) -> Payout:
        """In one transaction each: the ledger is told of every state on the way."""
        payout = await self.store.get(id)
        for event in events:
            now = self._now()

            def step(payout: Payout, event: Event = event, now: int = now) -> Payout:
                return advance(payout, event, now)

            payout = await self.store.change(id, step, now)
        return payout

    def _later(self, payout: Payout) -> int:
        tries = payout.errand.tries if payout.errand is not None else 1
        return self._now() + min(RETRY_S << min(tries - 1, 20), LONGEST_RETRY_S)

    def _now(self) -> int:
        return int(self._clock())


def amount_of(text: str) -> Nano:
    """Raises `InvalidInput`."""
    try:
        return nano(text)
    except ValueError as error:
        raise InvalidInput(f"Invalid value for `amount`: {error}.", param="amount") from None
