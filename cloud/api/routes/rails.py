"""What needs no token: the keys that receipts are checked with, and Stripe's webhooks, which Stripe signs."""

import structlog
from fastapi import APIRouter, Request
from starlette.responses import Response

from cloud.api.payouts.bodies import key_object
from cloud.api.payouts.disputes import new_dispute
from cloud.api.payouts.stripe_rail import Told
from cloud.api.routes.money import now, treasury
from cloud.api.routes.pages import answer
from cloud.api.treasury import Treasury
from shared.errors import Conflict, NotFound

router = APIRouter()
log = structlog.get_logger(__name__)


@router.get("/receipts/keys")
async def receipt_keys(request: Request) -> Response:
    """Every key that has signed receipts; those without `until` sign now."""
    keys = await treasury(request).receipts.keys()
    return answer({"object": "list", "data": [key_object(each) for each in keys]})


@router.post("/webhooks/stripe")
async def stripe_webhook(request: Request) -> Response:
    """Acts once on each event; one that cannot be acted on becomes a dispute, so that Stripe need not repeat it."""
    mine = treasury(request)
    if mine.stripe is None:
        raise NotFound("Payouts are not made by Stripe here.")
    told = mine.stripe.told(await request.body(), request.headers.get("stripe-signature"))
    if told is not None and not await mine.payouts.store.seen(told.event):
        await _act(mine, told, now(request))
        await mine.payouts.store.note_event(told.event, now(request))
    return answer({"received": True})


async def _act(mine: Treasury, told: Told, at: int) -> None:
    if told.payout is None:
        return
    try:
        if told.reversed:
            await mine.payouts.came_back(told.payout, f"Stripe reversed the transfer {told.reference}.")
        else:
            await mine.payouts.arrived(told.payout, told.reference)
    except NotFound:
        log.warning("stripe speaks of a payout that is not known", payout=told.payout, transfer=told.reference)
    except Conflict as error:
        payout = await mine.payouts.store.get(told.payout)
        log.error("stripe says of a payout what cannot be", payout=payout.id, state=payout.state, reason=error.message)
        claim = f"Stripe: transfer {told.reference} of {payout.id} {'was reversed' if told.reversed else 'exists'}, "
        claim += f"but the payout is {payout.state}."
        await mine.disputes.open(new_dispute(payout.owner, "owner", claim, "stripe", at, None))
