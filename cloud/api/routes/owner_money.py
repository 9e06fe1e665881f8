"""`/v1/owner`: what an owner has earned, the receipts for it, why not more, and how it is paid out."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from cloud.api.accounts.money import Nano, dollars
from cloud.api.bodies import json_object, validated
from cloud.api.market.keeper import MarketKeeper
from cloud.api.payouts.bodies import (
    DestinationInput,
    PayoutInput,
    TariffInput,
    balance_object,
    destination_text,
    payout_object,
    receipt_object,
)
from cloud.api.payouts.chain import statement
from cloud.api.payouts.destinations import bank_account
from cloud.api.payouts.payout import PayoutId
from cloud.api.reports.objects import day_of, earned_object, minute_object
from cloud.api.routes.money import account, amount_of, now, span, treasury
from cloud.api.routes.pages import answer, limit_of, number_of
from shared.errors import Conflict, InvalidInput
from shared.ids import AccountId, NodeId

router = APIRouter(prefix="/v1/owner")
MOST_TARIFF = Nano(10 * 10**9)
"""Ten dollars for a kilowatt-hour."""


@router.get("/earnings")
async def earnings(request: Request) -> Response:
    """By day and by node, with what stands where."""
    owner, (since, until) = account(request, "owner"), span(request)
    mine = treasury(request)
    tariff, told = await _tariff(request, owner)
    days = await mine.reports.earned_by_day(owner, since, until)
    nodes = await mine.reports.earned_by_node(since, until, owner)
    return answer(
        {
            "object": "earnings",
            "balance": balance_object(await mine.payouts.store.balance(owner)),
            "tariff": {"object": "tariff", "dollars_per_kwh": dollars(tariff), "assumed": not told},
            "days": [{"day": day_of(day), **earned_object(earned, tariff)} for day, earned in days.items()],
            "nodes": [{"node": node, **earned_object(earned, tariff)} for node, earned in nodes.items()],
        }
    )


@router.get("/receipts")
async def receipts(request: Request) -> Response:
    """In the order of their numbers, in pages: `after` is the `last` of the page before."""
    owner, limit = account(request, "owner"), limit_of(request)
    mine = treasury(request)
    after = number_of(request, "after", 0, 2**62) if request.query_params.get("after") != "0" else 0
    chain = await mine.receipts.receipts(owner, after, limit)
    last = chain.receipts[-1].receipt.sequence if chain.receipts else after
    more = last < chain.head.sequence
    told = statement(owner, chain.head, mine.key, now(request))
    return answer(
        {
            "object": "list",
            "data": [receipt_object(each) for each in chain.receipts],
            "statement": receipt_object(told),
            "has_more": more,
            "last": last if more else None,
        }
    )


@router.get("/activity")
async def activity(request: Request) -> Response:
    """Minutes of the owner's nodes, newest first, each with the reason why it did not earn more."""
    keeper: MarketKeeper = request.app.state.market
    owner, limit = account(request, "owner"), limit_of(request)
    node = request.query_params.get("node")
    since = number_of(request, "since", 1, 2**40)
    minutes = await keeper.store.minutes(owner=owner, node=NodeId(node) if node else None, since=since, limit=limit)
    return answer({"object": "list", "data": [minute_object(each) for each in minutes]})


@router.put("/tariff")
async def set_tariff(request: Request) -> Response:
    """What the owner pays for electricity; it changes what is shown, and nothing that is paid."""
    owner = account(request, "owner")
    given = validated(TariffInput, json_object(await request.body()))
    tariff = amount_of(given.dollars_per_kwh, "dollars_per_kwh")
    if not 0 <= tariff <= MOST_TARIFF:
        raise InvalidInput("`dollars_per_kwh` must be from 0 to 10.", param="dollars_per_kwh")
    await treasury(request).reports.set_tariff(owner, tariff)
    return answer({"object": "tariff", "dollars_per_kwh": dollars(tariff), "assumed": False})


@router.get("/destination")
async def destination(request: Request) -> Response:
    """Where payouts go, masked."""
    return answer(await _destination(request, account(request, "owner")))


@router.put("/destination")
async def set_destination(request: Request) -> Response:
    """The bank account for payouts that are asked for from now on."""
    owner = account(request, "owner")
    given = validated(DestinationInput, json_object(await request.body()))
    payouts = treasury(request).payouts
    if payouts.settings.rail != "manual":
        raise Conflict("Payouts are made by Stripe here: use `POST /v1/owner/onboarding`.")
    to = bank_account(given.name, given.iban, given.bic)
    await payouts.store.set_destination(owner, "manual", to.to_text(), now(request))
    return answer(await _destination(request, owner))


@router.post("/onboarding")
async def onboarding(request: Request) -> Response:
    """A link to Stripe's form, where the owner says who they are and where money goes."""
    owner, mine = account(request, "owner"), treasury(request)
    if mine.stripe is None or mine.payouts.settings.rail != "stripe":
        raise Conflict("Payouts are made by bank transfer here: use `PUT /v1/owner/destination`.")
    connected = await mine.payouts.store.destination(owner, "stripe")
    if connected is None:
        connected = await mine.stripe.open_account(owner)
        await mine.payouts.store.set_destination(owner, "stripe", connected, now(request))
    url = await mine.stripe.onboarding_link(connected)
    ready = await mine.stripe.may_be_paid(connected)
    return answer({"object": "onboarding", "url": url, "ready": ready})


@router.get("/payouts")
async def list_payouts(request: Request) -> Response:
    """The owner's, newest first."""
    owner, limit = account(request, "owner"), limit_of(request)
    found = await treasury(request).payouts.store.find(owner=owner, limit=limit)
    return answer({"object": "list", "data": [payout_object(each) for each in found]})


@router.post("/payouts")
async def ask_for_payout(request: Request) -> Response:
    """Of an amount, or of everything that is payable, in whole cents."""
    owner = account(request, "owner")
    given = validated(PayoutInput, json_object(await request.body()))
    amount = None if given.amount is None else amount_of(given.amount, "amount")
    return answer(payout_object(await treasury(request).payouts.ask(owner, amount)), 201)


@router.delete("/payouts/{payout}")
async def withdraw_payout(request: Request, payout: str) -> Response:
    """As long as nothing was sent; the money is payable again."""
    owner = account(request, "owner")
    return answer(payout_object(await treasury(request).payouts.withdraw(owner, PayoutId(payout))))


async def _tariff(request: Request, owner: AccountId) -> tuple[Nano, bool]:
    """And whether the owner has told it."""
    keeper: MarketKeeper = request.app.state.market
    told = await treasury(request).reports.tariff(owner)
    return (keeper.rates().rates.tariff, False) if told is None else (told, True)


async def _destination(request: Request, owner: AccountId) -> dict[str, object]:
    payouts = treasury(request).payouts
    rail = payouts.settings.rail
    found = await payouts.store.destination(owner, rail)
    shown = None if found is None else destination_text(rail, found)
    return {"object": "destination", "rail": rail, "destination": shown}
