"""`/v1/developer`: what an account has used, what that cost, what is left, and who saw its prompts."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from cloud.api.accounts.accounts import Accounts
from cloud.api.accounts.money import NOTHING, dollars
from cloud.api.ledger import places
from cloud.api.ledger.ports import Books
from cloud.api.reports.objects import seen_object, used_object
from cloud.api.routes.money import account, span, treasury
from cloud.api.routes.pages import answer, limit_of, number_of
from shared.errors import NotFound

router = APIRouter(prefix="/v1/developer")


@router.get("/usage")
async def usage(request: Request) -> Response:
    """By day, key and model."""
    mine, (since, until) = account(request, "developer"), span(request)
    used = await treasury(request).reports.used(mine, since, until)
    total = sum(each.cost for each in used)
    return answer({"object": "usage", "cost": dollars(total), "data": [used_object(each) for each in used]})


@router.get("/budgets")
async def budgets(request: Request) -> Response:
    """The account's prepaid money, and each key's budget with what this month has cost."""
    accounts: Accounts = request.app.state.accounts
    books: Books = request.app.state.books
    mine = account(request, "developer")
    balances = await books.balances([mine])
    keys = []
    for statement in await accounts.statements(mine):
        budget = statement.key.terms.monthly_budget
        left = None if budget is None else dollars(max(budget - statement.spent, 0))
        keys.append(
            {
                "key": statement.key.id,
                "name": statement.key.terms.name,
                "monthly_budget": None if budget is None else dollars(budget),
                "spent_this_month": dollars(statement.spent),
                "left": left,
            }
        )
    return answer(
        {
            "object": "budgets",
            "available": dollars(balances.get(places.available(mine), NOTHING)),
            "reserved": dollars(balances.get(places.reserved(mine), NOTHING)),
            "keys": keys,
        }
    )


@router.get("/requests")
async def requests(request: Request) -> Response:
    """The account's latest requests with who saw each prompt, newest first; `before` is a time."""
    mine, limit = account(request, "developer"), limit_of(request)
    before = number_of(request, "before", 0, 2**40) or None
    found = await treasury(request).reports.seen(mine, limit, before)
    return answer({"object": "list", "data": [seen_object(each) for each in found]})


@router.get("/requests/{name}")
async def one_request(request: Request, name: str) -> Response:
    """Who saw its prompt; 404 for other people's."""
    found = await treasury(request).reports.seen_one(account(request, "developer"), name)
    if found is None:
        raise NotFound("Your account made no request with this id, or it is not written down yet.")
    return answer(seen_object(found))
