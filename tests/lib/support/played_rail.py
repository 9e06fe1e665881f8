"""A rail that tests tell what to do, and that knows what it really paid."""

from dataclasses import dataclass, field

from cloud.api.payouts.payout import Payout, PayoutId
from cloud.api.payouts.ports import Accepted, Delayed, Outcome, Refused, Unknown


class Crash(BaseException):
    """The gateway's process is gone."""


@dataclass
class PlayedRail:
    """Like Stripe: one payment for each idempotency key, whose first answer is repeated."""

    name: str = "played"
    answers: dict[str, Outcome] = field(default_factory=dict)
    """By idempotency key."""
    paid: dict[PayoutId, list[str]] = field(default_factory=dict)
    """What went out, however often."""
    plan: list[str] = field(default_factory=list)
    """What the next calls come to: pay, lose (pays, and the answer is lost), silent, refuse, delay, crash (before
    anything), crash after (having paid). Nothing more planned: pay."""
    arrives: bool = True
    calls: list[tuple[PayoutId, str, bool]] = field(default_factory=list)
    gone_back: set[str] = field(default_factory=set)

    async def send(self, payout: Payout, *, again: bool) -> Outcome:
        self.calls.append((payout.id, payout.idempotency_key, again))
        if again and (made := self.paid.get(payout.id)):
            return Accepted(made[0], self.arrives)
        step = self.plan.pop(0) if self.plan else "pay"
        match step:
            case "crash":
                raise Crash
            case "silent":
                return Unknown("no answer")
        if (known := self.answers.get(payout.idempotency_key)) is not None:
            return known
        outcome: Outcome
        match step:
            case "refuse":
                outcome = Refused("account closed")
            case "delay":
                outcome = Delayed("no money")
            case _:
                reference = f"tr_{len(self.calls)}"
                self.paid.setdefault(payout.id, []).append(reference)
                outcome = Accepted(reference, self.arrives)
        self.answers[payout.idempotency_key] = outcome
        if step == "crash after":
            raise Crash
        return Unknown("the answer was lost") if step == "lose" else outcome

    async def look(self, payout: Payout) -> Accepted | Refused | Unknown:
        if payout.reference in self.gone_back:
            return Refused("it came back")
        return Accepted(payout.reference or "", self.arrives)
