"""Stripe Connect, by Stripe's own SDK: owners have connected accounts, payouts are transfers to them.

A transfer moves money between balances at once, so one that exists has arrived unless it was reversed. Idempotency keys
are kept by Stripe for a day at least: a try that begins again after an unknown outcome looks for a transfer with the
payout's id as `transfer_group` first, which Stripe keeps for good.
https://docs.stripe.com/api/idempotent_requests, https://docs.stripe.com/api/transfers, https://docs.stripe.com/webhooks
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import stripe
from stripe import StripeClient

from cloud.api.payouts.payout import CENT, Payout, PayoutId
from cloud.api.payouts.ports import Accepted, Delayed, Outcome, Refused, Unknown
from shared.errors import InvalidInput, NexusError, Unavailable

API_VERSION: Final = "2026-10-28.endive"
"""What the answers are read as; the same whatever Stripe's newest version is."""
TOLERANCE_S: Final = 300
"""How old a webhook may be, as Stripe recommends."""
TIMEOUT_S: Final = 30.0
_OWNERS_FAULT: Final = frozenset(
    {
        "account_closed",
        "account_invalid",
        "insufficient_capabilities_for_transfer",
        "no_account",
        "payouts_not_allowed",
        "resource_missing",
        "transfers_not_allowed",
    }
)
"""Codes that say that nothing can be paid to this account: the money becomes payable again."""
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class StripeSettings:
    """`return_url` and `refresh_url`: where Stripe sends an owner who has filled in its form, or whose link is old."""

    api_key: str = field(repr=False)
    webhook_secret: str = field(repr=False)
    api_url: str = "https://api.stripe.com"
    return_url: str
    refresh_url: str


@dataclass(frozen=True, slots=True)
class Told:
    """What a webhook says of a payout. `reversed`: the money came back."""

    event: str
    payout: PayoutId | None
    reference: str
    reversed: bool = False


class StripeRail:
    """A `Rail`. The SDK is synchronous: its calls run in threads."""

    name = "stripe"

    def __init__(self, settings: StripeSettings, *, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._clock = clock
        self._client = StripeClient(
            settings.api_key,
            stripe_version=API_VERSION,
            base_addresses={"api": settings.api_url},
            max_network_retries=0,  # tries are counted in the outbox
            http_client=stripe.RequestsClient(timeout=TIMEOUT_S),
        )

    # --- owners ----------------------------------------------------------------------------------

    async def open_account(self, owner: str) -> str:
        """A connected account for this owner, which may be paid once the owner has filled in Stripe's form.

        Raises `Unavailable`. Asked again within a day, Stripe gives the same account.
        """
        params: dict[str, Any] = {
            "controller": {
                "fees": {"payer": "application"},
                "losses": {"payments": "application"},
                "stripe_dashboard": {"type": "express"},
            },
            "capabilities": {"transfers": {"requested": True}},
            "metadata": {"nexus_owner": owner},
        }
        made = await self._call(
            lambda: self._client.v1.accounts.create(params, {"idempotency_key": f"account-{owner}"})  # type: ignore[arg-type]
        )
        return str(made.id)

    async def onboarding_link(self, account: str) -> str:
        """Where the owner tells Stripe who they are; good once and for some minutes. Raises `Unavailable`."""
        made = await self._call(
            lambda: self._client.v1.account_links.create(
                {
                    "account": account,
                    "refresh_url": self._settings.refresh_url,
                    "return_url": self._settings.return_url,
                    "type": "account_onboarding",
                }
            )
        )
        return str(made.url)

    async def may_be_paid(self, account: str) -> bool:
        """Whether Stripe lets money go to this account. Raises `Unavailable`."""
        found = await self._call(lambda: self._client.v1.accounts.retrieve(account))
        capabilities = found.capabilities
        return capabilities is not None and getattr(capabilities, "transfers", None) == "active"

    # --- payouts ---------------------------------------------------------------------------------

    async def send(self, payout: Payout, *, again: bool) -> Outcome:
        try:
            if again and (found := await asyncio.to_thread(self._made_before, payout)) is not None:
                return found
            return await asyncio.to_thread(self._transfer, payout)
        except stripe.StripeError as error:
            return _outcome(error)

    async def look(self, payout: Payout) -> Accepted | Refused | Unknown:
        if payout.reference is None:
            return Unknown("The payout has no transfer.")
        reference = payout.reference
        try:
            return _state(await asyncio.to_thread(lambda: self._client.v1.transfers.retrieve(reference)))
        except stripe.StripeError as error:
            return Unknown(_words(error))

    def _made_before(self, payout: Payout) -> Accepted | Refused | Unknown | None:
        found = self._client.v1.transfers.list({"transfer_group": payout.id, "limit": 10})
        return _state(found.data[0]) if found.data else None

    def _transfer(self, payout: Payout) -> Accepted | Refused | Unknown:
        made = self._client.v1.transfers.create(
            {
                "amount": payout.amount // CENT,
                "currency": "usd",
                "destination": payout.destination,
                "transfer_group": payout.id,
                "metadata": {"nexus_payout": payout.id},
            },
            {"idempotency_key": payout.idempotency_key},
        )
        return _state(made)

    # --- webhooks --------------------------------------------------------------------------------

    def told(self, body: bytes, signature: str | None) -> Told | None:
        """What a webhook says; none when it is about something else. Raises `InvalidInput` unless Stripe signed it,
        lately, and it can be read.
        """
        self._check(body, signature)
        try:
            event = stripe.Webhook.construct_event(
                body, signature, self._settings.webhook_secret, tolerance=0, api_key=self._settings.api_key
            )
            data: Any = event.data.object
            if not event.type.startswith("transfer."):
                return None
            payout = data.to_dict().get("metadata", {}).get("nexus_payout")
            told = Told(event.id, PayoutId(payout) if payout else None, data.id, bool(data.reversed))
        except (ValueError, AttributeError, KeyError, TypeError):
            raise InvalidInput("This is no event of Stripe.") from None
        return told if event.type in ("transfer.created", "transfer.updated", "transfer.reversed") else None

    def _check(self, body: bytes, signature: str | None) -> None:
        """By our own clock, in both directions: `stripe.Webhook` takes any time in the future."""
        try:
            stripe.WebhookSignature.verify_header(body, signature, self._settings.webhook_secret)
            times = [part[2:] for part in (signature or "").split(",") if part.startswith("t=")]
            if abs(int(times[0]) - self._clock()) > TOLERANCE_S:
                raise InvalidInput("This webhook was not signed just now.")
        except (stripe.SignatureVerificationError, UnicodeDecodeError, ValueError):
            raise InvalidInput("This webhook was not signed by Stripe.") from None

    async def _call(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except stripe.StripeError as error:
            raise _unavailable(error) from None


def _state(transfer: Any) -> Accepted | Refused | Unknown:
    """A transfer that exists has arrived, unless it went back."""
    if transfer.reversed:
        return Refused(f"Stripe reversed the transfer {transfer.id}.")
    if transfer.amount_reversed:
        return Unknown(f"Stripe reversed a part of the transfer {transfer.id}: settle it by hand.")
    return Accepted(transfer.id, arrived=True)


def _outcome(error: stripe.StripeError) -> Outcome:
    """What a failed call says about the money: that it did not move, or that nobody knows."""
    if isinstance(error, stripe.APIConnectionError | stripe.APIError | stripe.IdempotencyError):
        return Unknown(_words(error))
    if error.http_status is None or error.http_status >= 500 or error.http_status == 409:
        return Unknown(_words(error))
    if isinstance(error, stripe.InvalidRequestError) and error.code in _OWNERS_FAULT:
        return Refused(_words(error))
    return Delayed(_words(error))


def _words(error: stripe.StripeError) -> str:
    """For operators; nothing of it is secret."""
    told = error.user_message or error.code or type(error).__name__
    return f"Stripe: {told}"[:300]


def _unavailable(error: stripe.StripeError) -> NexusError:
    return Unavailable(f"Stripe cannot do this at the moment ({error.code or type(error).__name__}). Try again later.")
