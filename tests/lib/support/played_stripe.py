"""A stand-in for Stripe's API: what the official SDK sends is checked, what it should see is answered.

By Stripe's reference: form fields, `Authorization: Bearer`, `Stripe-Version`, `Idempotency-Key` with the first answer
repeated, errors as `{"error": …}`, and webhooks signed with HMAC-SHA256 over `<time>.<body>`.
"""

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

KEY = "sk_test_0123456789"
SECRET = "whsec_0123456789"


@dataclass
class Call:
    """A request as it came."""

    method: str
    path: str
    fields: dict[str, str]
    headers: Mapping[str, str]


@dataclass
class PlayedStripe:
    """`plan`: what the next calls of POST come to, `lose` (done, and answered with 500 nobody can use), `hang up`
    (done, and no answer), or a status with Stripe's code and type."""

    calls: list[Call] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    plan: list[Any] = field(default_factory=list)
    transfers: dict[str, dict[str, Any]] = field(default_factory=dict)
    accounts: dict[str, dict[str, Any]] = field(default_factory=dict)
    kept: dict[str, tuple[str, int, Any]] = field(default_factory=dict)
    """By idempotency key: the body it came with, and the answer."""

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/v1/{path:path}", self._serve, methods=["GET", "POST"])])

    def forget_keys(self) -> None:
        """A day has passed."""
        self.kept.clear()

    async def _serve(self, request: Request) -> Response:
        body = (await request.body()).decode()
        raw = body if request.method == "POST" else request.url.query
        call = Call(request.method, request.url.path, dict(parse_qsl(raw, keep_blank_values=True)), request.headers)
        self.calls.append(call)
        self._check(call)
        if request.method == "GET":
            return JSONResponse(*self._get(call))
        key = request.headers.get("idempotency-key", "")
        if known := self.kept.get(key):
            if known[0] != raw:
                return JSONResponse(_error("idempotency_error", None, "Keys may only be used with the same"), 400)
            return JSONResponse(known[2], known[1], headers={"idempotent-replayed": "true"})
        step = self.plan.pop(0) if self.plan else None
        if isinstance(step, tuple):
            status, kind, code = step
            answer: Any = _error(kind, code, f"No: {code}")
        else:
            answer, status = self._post(call)
        if status != 409 and key:
            self.kept[key] = (raw, status, answer)
        if step == "lose":
            return JSONResponse(_error("api_error", None, "Something is broken"), 500)
        if step == "hang up":
            return _HangUp()
        return JSONResponse(answer, status)

    def _check(self, call: Call) -> None:
        wanted = {"authorization": f"Bearer {KEY}", "stripe-version": "2026-10-28.endive"}
        for name, value in wanted.items():
            if call.headers.get(name) != value:
                self.faults.append(f"{call.path}: {name} is {call.headers.get(name)!r}")
        if call.method == "POST":
            if call.headers.get("content-type") != "application/x-www-form-urlencoded":
                self.faults.append(f"{call.path}: it is no form")
            if call.path != "/v1/account_links" and not call.headers.get("idempotency-key"):
                self.faults.append(f"{call.path}: no idempotency key")

    def _post(self, call: Call) -> tuple[Any, int]:
        fields = call.fields
        if call.path == "/v1/transfers":
            wanted = {"amount", "currency", "destination", "transfer_group", "metadata[nexus_payout]"}
            if set(fields) != wanted or not fields["amount"].isdigit() or fields["currency"] != "usd":
                self.faults.append(f"a transfer of {fields}")
            made = {
                "id": f"tr_{len(self.transfers) + 1}",
                "object": "transfer",
                "amount": int(fields["amount"]),
                "amount_reversed": 0,
                "reversed": False,
                "currency": "usd",
                "destination": fields["destination"],
                "transfer_group": fields["transfer_group"],
                "metadata": {"nexus_payout": fields["metadata[nexus_payout]"]},
            }
            self.transfers[made["id"]] = made
            return made, 200
        if call.path == "/v1/accounts":
            id = f"acct_{len(self.accounts) + 1}"
            self.accounts[id] = {"id": id, "object": "account", "capabilities": {"transfers": "pending"}}
            return self.accounts[id], 200
        if call.path == "/v1/account_links":
            if (
                set(fields) != {"account", "refresh_url", "return_url", "type"}
                or fields["type"] != "account_onboarding"
            ):
                self.faults.append(f"a link of {fields}")
            return {"object": "account_link", "url": f"https://connect.stripe.test/{fields['account']}"}, 200
        self.faults.append(f"{call.method} {call.path}")
        return _error("invalid_request_error", None, "Unrecognized request URL"), 404

    def _get(self, call: Call) -> tuple[Any, int]:
        kind, _, id = call.path.removeprefix("/v1/").partition("/")
        if kind == "transfers" and not id:
            group = call.fields.get("transfer_group")
            found = [each for each in self.transfers.values() if each["transfer_group"] == group]
            return {"object": "list", "data": found, "has_more": False, "url": "/v1/transfers"}, 200
        found_one = (self.transfers if kind == "transfers" else self.accounts).get(id)
        if found_one is None:
            return _error("invalid_request_error", "resource_missing", f"No such {kind}: {id}"), 404
        return found_one, 200


class _HangUp(Response):
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """The connection ends in the middle of the headers' promise."""
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"100")]})
        raise ConnectionAbortedError


def event(kind: str, transfer: dict[str, Any], id: str = "evt_1") -> bytes:
    """A webhook's body."""
    data = {"id": id, "object": "event", "type": kind, "data": {"object": transfer}, "api_version": "2026-10-28.endive"}
    return json.dumps(data).encode()


def signature(body: bytes, at: float, secret: str = SECRET) -> str:
    """The header `Stripe-Signature`, as Stripe's documentation describes it."""
    digest = hmac.new(secret.encode(), f"{int(at)}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={int(at)},v1={digest}"


def _error(kind: str, code: str | None, message: str) -> dict[str, Any]:
    return {"error": {"type": kind, "code": code, "message": message}}
