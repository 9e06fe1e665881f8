"""`/admin/keys`: API keys over HTTP, for operators who signed in and keys with the scope admin."""

import time

from fastapi import APIRouter, Request
from starlette.responses import Response

from cloud.api.accounts.accounts import Accounts, Statement
from cloud.api.accounts.keys import KeyId
from cloud.api.accounts.money import Nano
from cloud.api.accounts.terms import key_object, read_key
from cloud.api.bodies import json_object
from cloud.api.routes.pages import answer
from cloud.api.routes.signed_in import operator

router = APIRouter(prefix="/admin/keys")


@router.get("")
async def list_keys(request: Request) -> Response:
    """Every key with what it has cost this month; those of the settings too."""
    accounts: Accounts = request.app.state.accounts
    now = time.time()
    return answer({"object": "list", "data": [key_object(each, now) for each in await accounts.statements()]})


@router.post("")
async def create_key(request: Request) -> Response:
    """A new key; `key` in the answer is its secret, which is shown this once."""
    accounts: Accounts = request.app.state.accounts
    data = json_object(await request.body())
    now = time.time()
    new = await accounts.create(*read_key(data, now), by=operator(request))
    return answer({**key_object(Statement(new.key, Nano(0)), now), "key": new.secret}, 201)


@router.delete("/{key}")
async def revoke_key(request: Request, key: str) -> Response:
    """The revoked key. A second time changes nothing."""
    accounts: Accounts = request.app.state.accounts
    revoked = await accounts.revoke(KeyId(key), by=operator(request))
    return answer(key_object(Statement(revoked, accounts.budgets.spent(revoked.id)), time.time()))
