"""`/v1/owner`: an owner's nodes, and what a code that a machine shows would pair."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from cloud.api.audit.entry import Actor
from cloud.api.bodies import json_object, validated
from cloud.api.identity.bodies import NodeInput, node_object, pairing_object
from cloud.api.identity.identity import Identity
from cloud.api.routes.pages import answer, limit_of, page
from cloud.api.routes.signed_in import signed_in
from shared.ids import NodeId

router = APIRouter(prefix="/v1/owner")


@router.get("/nodes")
async def list_nodes(request: Request) -> Response:
    """Revoked ones too; in pages."""
    identity: Identity = request.app.state.identity
    who = signed_in(request, "owner")
    limit, after = limit_of(request), request.query_params.get("after")
    nodes = await identity.pairings.nodes(limit, NodeId(after) if after else None, who.account.id)
    return page([node_object(node) for node in nodes], limit, nodes[-1].id if nodes else None)


@router.patch("/nodes/{node}")
async def rename_node(request: Request, node: str) -> Response:
    identity: Identity = request.app.state.identity
    account = signed_in(request, "owner").account.id
    given = validated(NodeInput, json_object(await request.body()))
    return answer(node_object(await identity.pairings.rename(NodeId(node), given.name, Actor(account), account)))


@router.delete("/nodes/{node}")
async def revoke_node(request: Request, node: str) -> Response:
    """For good; a connected node is turned away."""
    identity: Identity = request.app.state.identity
    account = signed_in(request, "owner").account.id
    return answer(node_object(await identity.pairings.revoke(NodeId(node), Actor(account), account)))


@router.get("/pairings/{user_code}")
async def look_up_pairing(request: Request, user_code: str) -> Response:
    identity: Identity = request.app.state.identity
    who = signed_in(request, "owner")
    return answer(pairing_object(await identity.pairings.look_up(user_code, who.account.id)))
