"""Payouts by Stripe through the real gateway: onboarding, the transfer, and what webhooks may do."""

import time

import pytest
import uvicorn
from support.api_errors import check
from support.played_stripe import KEY, SECRET, PlayedStripe, event, signature
from support.serving import serving

from cloud.api.accounts.money import Nano
from cloud.api.ledger.entries import adjustment
from cloud.api.ledger.places import payable
from cloud.api.settings import IdentityOptions, PayoutOptions

DOLLAR = 10**9


@pytest.fixture
async def played():
    stripe = PlayedStripe()
    async with serving(uvicorn.Config(stripe.app(), port=0, log_config=None, lifespan="off")) as stripe.url:
        yield stripe
    assert stripe.faults == []


@pytest.fixture
async def extra(played):
    payouts = PayoutOptions(
        rail="stripe",
        stripe_api_key=KEY,
        stripe_webhook_secret=SECRET,
        stripe_return_url="https://nexus.test/done",
        stripe_api_url=played.url,
    )
    quick = IdentityOptions(argon2_memory_kib=7168, argon2_passes=1, argon2_lanes=1)
    return {"payouts": payouts, "identity": quick}


@pytest.fixture
async def owner(gateway):
    """Asks as an owner to whom 50 dollars are payable."""
    identity = gateway.app.state.identity
    account = await identity.people.create("o@example.com", "o", ["owner"], "correct horse battery", "system")
    await gateway.app.state.books.post(adjustment(payable(account.id), Nano(50 * DOLLAR), "start", reason="test"))
    signed = await gateway.post(
        {"email": "o@example.com", "password": "correct horse battery"},
        "/v1/account/sign-in",
        headers={"authorization": ""},
    )
    headers = {"authorization": f"Bearer {signed.json()['token']}"}

    async def ask(method, path, body=None):
        return await gateway.http.request(method, path, json=body, headers=headers)

    return ask


async def hook(gateway, body, header=None):
    """What Stripe would send now."""
    given = signature(body, time.time()) if header is None else header
    return await gateway.post(body, "/webhooks/stripe", headers={"authorization": "", "stripe-signature": given})


async def approved(gateway, owner):
    """A payout that the worker has not seen."""
    await gateway.app.state.treasury.payouts.stop()
    assert (await owner("POST", "/v1/owner/onboarding")).status_code == 200
    payout = (await owner("POST", "/v1/owner/payouts", {})).json()["id"]
    for by in ("alice", "bob"):
        await gateway.app.state.treasury.payouts.approve(by, payout)
    return payout


async def test_the_whole_way(gateway, owner, played):
    """The owner fills in Stripe's form once; two operators approve; the transfer is made, and the money is paid."""
    check(await owner("POST", "/v1/owner/payouts", {}), 409, "conflict")
    check(await owner("PUT", "/v1/owner/destination", {"name": "O", "iban": "DE89370400440532013000"}), 409, "conflict")
    for _ in range(2):
        link = (await owner("POST", "/v1/owner/onboarding")).json()
    assert link == {"object": "onboarding", "url": "https://connect.stripe.test/acct_1", "ready": False}
    assert len(played.accounts) == 1
    payout = await approved(gateway, owner)
    await gateway.app.state.treasury.payouts.work()
    [mine] = (await owner("GET", "/v1/owner/payouts")).json()["data"]
    assert (mine["id"], mine["state"], mine["reference"], mine["amount"]) == (payout, "paid", "tr_1", "50")
    balance = (await owner("GET", "/v1/owner/earnings")).json()["balance"]
    assert balance == {"pending": "0", "payable": "0", "paying": "0", "paid": "50"}


async def test_a_webhook_settles_a_payout_whose_answer_was_lost(gateway, owner, played):
    """Once, however often it comes; nobody else's word counts."""
    payout = await approved(gateway, owner)
    played.plan = ["lose"]
    await gateway.app.state.treasury.payouts.work()
    body = event("transfer.created", played.transfers["tr_1"])
    for header in ("", "t=1,v1=00", signature(body, time.time(), "whsec_other"), signature(body, time.time() - 600)):
        check(await hook(gateway, body, header), 400, "invalid_request")
    check(await hook(gateway, b"{}"), 400, "invalid_request")
    for _ in range(2):
        assert (await hook(gateway, body)).json() == {"received": True}
    [mine] = (await owner("GET", "/v1/owner/payouts")).json()["data"]
    assert (mine["id"], mine["state"], mine["reference"]) == (payout, "paid", "tr_1")
    assert await gateway.app.state.treasury.payouts.work() == 0


async def test_what_cannot_be_becomes_a_dispute(gateway, owner, played):
    """A transfer that is reversed after it arrived is for people: one dispute, and Stripe need not ask again."""
    payout = await approved(gateway, owner)
    await gateway.app.state.treasury.payouts.work()
    back = event("transfer.reversed", played.transfers["tr_1"] | {"reversed": True, "amount_reversed": 5000}, "evt_9")
    for _ in range(2):
        assert (await hook(gateway, back)).status_code == 200
    [dispute] = await gateway.app.state.treasury.disputes.find()
    assert payout in dispute.claim and "reversed" in dispute.claim and dispute.opened_by == "stripe"
    unknown = played.transfers["tr_1"] | {"metadata": {"nexus_payout": "pay_unknown"}}
    assert (await hook(gateway, event("transfer.created", unknown, "evt_10"))).status_code == 200
    other = event("payout.paid", {"id": "po_1", "object": "payout"}, "evt_11")
    assert (await hook(gateway, other)).status_code == 200
