"""`/v1/account`: signing up, in and out, and what an account has: itself, its sessions and its API keys."""

import time

from fastapi import APIRouter, Request
from starlette.responses import Response

from cloud.api.accounts.accounts import Accounts, Statement
from cloud.api.accounts.keys import KeyId
from cloud.api.accounts.money import NOTHING
from cloud.api.accounts.terms import key_object, read_own_terms
from cloud.api.audit.entry import Actor
from cloud.api.bodies import json_object, validated
from cloud.api.identity.bodies import (
    PasswordInput,
    SignInInput,
    SignUpInput,
    account_object,
    new_session_object,
    session_object,
)
from cloud.api.identity.identity import Identity
from cloud.api.routes.pages import answer
from cloud.api.routes.signed_in import address_of, client_of, signed_in

router = APIRouter(prefix="/v1/account")


@router.post("/sign-up")
async def sign_up(request: Request) -> Response:
    """A new account, signed in at once."""
    identity: Identity = request.app.state.identity
    given = validated(SignUpInput, json_object(await request.body()))
    account, new = await identity.people.sign_up(
        given.email,
        given.password,
        given.name or given.email,
        given.roles or ("developer",),
        address=address_of(request),
        client=client_of(request),
    )
    return answer(new_session_object(account, new), 201)


@router.post("/sign-in")
async def sign_in(request: Request) -> Response:
    """A new session; `token` is shown this once."""
    identity: Identity = request.app.state.identity
    given = validated(SignInInput, json_object(await request.body()))
    account, new = await identity.people.sign_in(
        given.email, given.password, address=address_of(request), client=client_of(request)
    )
    return answer(new_session_object(account, new))


@router.post("/sign-out")
async def sign_out(request: Request) -> Response:
    """Ends the session that asks."""
    identity: Identity = request.app.state.identity
    who = signed_in(request)
    ended = await identity.people.end_session(who.account.id, who.session.id, Actor(who.account.id))
    return answer(session_object(ended, who.session.id))


@router.get("")
async def me(request: Request) -> Response:
    return answer(account_object(signed_in(request).account))


@router.post("/password")
async def change_password(request: Request) -> Response:
    """All other sessions end."""
    identity: Identity = request.app.state.identity
    who = signed_in(request)
    given = validated(PasswordInput, json_object(await request.body()))
    return answer(account_object(await identity.people.change_password(who, given.current, given.password)))


@router.get("/sessions")
async def list_sessions(request: Request) -> Response:
    identity: Identity = request.app.state.identity
    who = signed_in(request)
    sessions = await identity.people.sessions(who.account.id)
    return answer({"object": "list", "data": [session_object(each, who.session.id) for each in sessions]})


@router.delete("/sessions/{session}")
async def end_session(request: Request, session: str) -> Response:
    identity: Identity = request.app.state.identity
    who = signed_in(request)
    ended = await identity.people.end_session(who.account.id, session, Actor(who.account.id))
    return answer(session_object(ended, who.session.id))


@router.get("/keys")
async def list_keys(request: Request) -> Response:
    """The account's own keys, with what each has cost this month."""
    accounts: Accounts = request.app.state.accounts
    who = signed_in(request, "developer")
    now = time.time()
    statements = await accounts.statements(who.account.id)
    return answer({"object": "list", "data": [key_object(each, now) for each in statements]})


@router.post("/keys")
async def create_key(request: Request) -> Response:
    """`key` in the answer is the secret, which is shown this once."""
    accounts: Accounts = request.app.state.accounts
    who = signed_in(request, "developer")
    now = time.time()
    new = await accounts.create_own(read_own_terms(json_object(await request.body()), now), who.account.id)
    return answer({**key_object(Statement(new.key, NOTHING), now), "key": new.secret}, 201)


@router.delete("/keys/{key}")
async def revoke_key(request: Request, key: str) -> Response:
    """A second time changes nothing."""
    accounts: Accounts = request.app.state.accounts
    account = signed_in(request, "developer").account.id
    revoked = await accounts.revoke(KeyId(key), by=Actor(account), of=account)
    return answer(key_object(Statement(revoked, accounts.budgets.spent(revoked.id)), time.time()))
