"""`/admin`: books, prices, standings of nodes, disputes and payouts, for operators."""

from typing import TypeVar

from fastapi import APIRouter, Request
from starlette.responses import Response

from cloud.api.accounts.money import NOTHING
from cloud.api.bodies import json_object, validated
from cloud.api.ledger.ports import Books
from cloud.api.market.keeper import MarketKeeper
from cloud.api.payouts import disputes as rules
from cloud.api.payouts.batches import read_results, to_csv
from cloud.api.payouts.bodies import (
    DecisionInput,
    DisputeInput,
    ReasonInput,
    ResultsInput,
    admin_payout_object,
    dispute_object,
)
from cloud.api.payouts.payout import PayoutId, State
from cloud.api.reports.objects import books_object, price_object, rates_object, standing_object
from cloud.api.reports.ports import DAY_S
from cloud.api.routes.money import amount_of, now, person, treasury
from cloud.api.routes.pages import answer, limit_of
from cloud.api.routes.signed_in import operator
from shared.errors import InvalidInput, NotFound
from shared.ids import AccountId

router = APIRouter(prefix="/admin")
S = TypeVar("S", State, rules.State)


@router.get("/books")
async def books(request: Request) -> Response:
    """Sums of the ledger, and whether everything agrees that must."""
    operator(request)
    found: Books = request.app.state.books
    return answer(books_object(await found.audit()))


@router.get("/prices")
async def prices(request: Request) -> Response:
    """Every version of prices and rates, oldest first."""
    keeper: MarketKeeper = request.app.state.market
    operator(request)
    book = await keeper.store.book()
    return answer(
        {
            "object": "prices",
            "prices": [price_object(each) for each in book.prices],
            "rates": [rates_object(each) for each in book.rates],
        }
    )


@router.get("/nodes/standings")
async def standings(request: Request) -> Response:
    """What each node is worth to each model by measurement, who is in quarantine, and who has earned today."""
    keeper: MarketKeeper = request.app.state.market
    operator(request)
    at = now(request)
    held = {each.node: each for each in await keeper.store.quarantines(at)}
    today = await treasury(request).reports.earned_by_node(at - DAY_S, at + 1)
    found = await keeper.store.standings()
    return answer({"object": "list", "data": [standing_object(each, held, today) for each in found]})


@router.get("/disputes")
async def list_disputes(request: Request) -> Response:
    """Newest first; those in one `state`."""
    operator(request)
    state = _choice(request, "state", rules.State)
    found = await treasury(request).disputes.find(state, limit_of(request))
    return answer({"object": "list", "data": [dispute_object(each) for each in found]})


@router.post("/disputes")
async def open_dispute(request: Request) -> Response:
    by = operator(request)
    given = validated(DisputeInput, json_object(await request.body()))
    dispute = rules.new_dispute(AccountId(given.account), given.side, given.claim, by, now(request), given.request_id)
    return answer(dispute_object(await treasury(request).disputes.open(dispute)), 201)


@router.post("/disputes/{dispute}/decide")
async def decide_dispute(request: Request, dispute: str) -> Response:
    """With an `amount` an adjustment is posted, and an owner gets a receipt for it; without one it is rejected."""
    by = person(request)
    given = validated(DecisionInput, json_object(await request.body()))
    amount = NOTHING if given.amount is None else amount_of(given.amount, "amount")
    if given.amount is not None and not amount:
        raise InvalidInput("`amount` must not be 0: leave it out to reject the dispute.", param="amount")
    at = now(request)

    def decide(found: rules.Dispute) -> rules.Dispute:
        return rules.resolve(found, amount, given.reason, by, at)

    return answer(dispute_object(await treasury(request).disputes.decide(rules.DisputeId(dispute), decide)))


@router.get("/payouts")
async def list_payouts(request: Request) -> Response:
    """Newest first; those in one `state`, or of one `owner`."""
    operator(request)
    owner = request.query_params.get("owner")
    found = await treasury(request).payouts.store.find(
        owner=AccountId(owner) if owner else None, state=_choice(request, "state", State), limit=limit_of(request)
    )
    return answer({"object": "list", "data": [admin_payout_object(each) for each in found]})


@router.post("/payouts/{payout}/approve")
async def approve_payout(request: Request, payout: str) -> Response:
    """The second operator's approval lets it go; the same person twice is refused."""
    by = person(request)
    return answer(admin_payout_object(await treasury(request).payouts.approve(by, PayoutId(payout))))


@router.post("/payouts/{payout}/cancel")
async def cancel_payout(request: Request, payout: str) -> Response:
    """As long as nothing was sent; the money is payable again."""
    by = person(request)
    given = validated(ReasonInput, json_object(await request.body()))
    return answer(admin_payout_object(await treasury(request).payouts.cancel(by, PayoutId(payout), given.reason)))


@router.post("/payouts/batches")
async def make_batch(request: Request) -> Response:
    """Every approved payout that is made by hand, sent from now on."""
    operator(request)
    found = await treasury(request).payouts.batch()
    return answer(
        {"object": "batch", "id": found[0].batch, "payouts": [admin_payout_object(each) for each in found]}, 201
    )


@router.get("/payouts/batches/{batch}")
async def read_batch(request: Request, batch: str) -> Response:
    """As CSV for the bank; the same however often it is asked for."""
    operator(request)
    found = await treasury(request).payouts.store.find(batch=batch, limit=10_000)
    if not found:
        raise NotFound("There is no batch with this id.")
    headers = {"cache-control": "no-store", "content-disposition": f'attachment; filename="{found[0].batch}.csv"'}
    return Response(to_csv(found), 200, headers, media_type="text/plain")


@router.post("/payouts/batches/{batch}/results")
async def take_results(request: Request, batch: str) -> Response:
    """What the bank says of the batch: all lines are taken, or none. The same file again changes nothing."""
    operator(request)
    given = validated(ResultsInput, json_object(await request.body()))
    payouts = treasury(request).payouts
    sent = {each.id: each for each in await payouts.store.find(batch=batch, limit=10_000)}
    if not sent:
        raise NotFound("There is no batch with this id.")
    found = await payouts.settle_batch(read_results(given.csv.encode(), sent))
    return answer({"object": "list", "data": [admin_payout_object(each) for each in found]})


def _choice(request: Request, name: str, kind: type[S]) -> S | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        return kind(text)
    except ValueError:
        known = ", ".join(kind)
        raise InvalidInput(f"Invalid value for `{name}`: it is one of {known}.", param=name) from None
