"""`/admin/accounts`, `/admin/nodes` and `/admin/audit`: for operators who signed in, and keys with the scope admin."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from cloud.api.audit.entry import Actor
from cloud.api.bodies import json_object, validated
from cloud.api.identity.bodies import (
    AccountChangeInput,
    AccountInput,
    account_object,
    audit_object,
    node_object,
)
from cloud.api.identity.identity import Identity
from cloud.api.routes.pages import answer, limit_of, number_of, page
from cloud.api.routes.signed_in import operator
from shared.errors import Conflict
from shared.ids import AccountId, NodeId

router = APIRouter(prefix="/admin")


@router.get("/accounts")
async def list_accounts(request: Request) -> Response:
    """In the order of their creation, in pages."""
    identity: Identity = request.app.state.identity
    operator(request)
    limit, after = limit_of(request), request.query_params.get("after")
    accounts = await identity.people.list(limit, AccountId(after) if after else None)
    return page([account_object(each) for each in accounts], limit, accounts[-1].id if accounts else None)


@router.post("/accounts")
async def create_account(request: Request) -> Response:
    identity: Identity = request.app.state.identity
    by = operator(request)
    given = validated(AccountInput, json_object(await request.body()))
    made = await identity.people.create(given.email, given.name or given.email, given.roles, given.password, by)
    return answer(account_object(made), 201)


@router.get("/accounts/{account}")
async def get_account(request: Request, account: str) -> Response:
    """By id or by e-mail address."""
    identity: Identity = request.app.state.identity
    operator(request)
    return answer(account_object(await identity.people.find(account)))


@router.patch("/accounts/{account}")
async def change_account(request: Request, account: str) -> Response:
    """Roles first; what a role allowed, and everything that a disabled account has, ends with it."""
    identity: Identity = request.app.state.identity
    by = operator(request)
    given = validated(AccountChangeInput, json_object(await request.body()))
    found = await identity.people.find(account)
    if by == Actor(found.id) and (given.disabled or (given.roles is not None and "operator" not in given.roles)):
        raise Conflict("Operators do not shut themselves out: ask another one, or use `nexus accounts`.")
    if given.roles is not None:
        found = await identity.people.set_roles(found.id, given.roles, by)
    if given.disabled is not None:
        found = await identity.people.set_disabled(found.id, given.disabled, by)
    return answer(account_object(found))


@router.get("/nodes")
async def list_nodes(request: Request) -> Response:
    """All of them, or those of one `owner`; in pages."""
    identity: Identity = request.app.state.identity
    operator(request)
    limit, query = limit_of(request), request.query_params
    after, owner = query.get("after"), query.get("owner")
    nodes = await identity.pairings.nodes(limit, NodeId(after) if after else None, AccountId(owner) if owner else None)
    return page([node_object(node) for node in nodes], limit, nodes[-1].id if nodes else None)


@router.delete("/nodes/{node}")
async def revoke_node(request: Request, node: str) -> Response:
    """For good; a connected node is turned away."""
    identity: Identity = request.app.state.identity
    return answer(node_object(await identity.pairings.revoke(NodeId(node), operator(request))))


@router.get("/audit")
async def audit(request: Request) -> Response:
    """Newest first, in pages: `before` is the `last` of the page before."""
    identity: Identity = request.app.state.identity
    operator(request)
    limit = limit_of(request)
    before = number_of(request, "before", 0, 2**62) or None
    entries = await identity.audit.page(limit, before, request.query_params.get("subject"))
    return page([audit_object(each) for each in entries], limit, entries[-1].seq if entries else None)
