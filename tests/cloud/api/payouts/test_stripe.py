"""Stripe Connect through the official SDK, against a stand-in that checks what is sent."""

from dataclasses import replace

import pytest
import uvicorn
from support.played_stripe import KEY, SECRET, PlayedStripe, event, signature
from support.serving import serving

from cloud.api.accounts.money import Nano
from cloud.api.payouts.memory import MemoryPayoutLedger, MemoryPayouts
from cloud.api.payouts.payout import State, new_payout
from cloud.api.payouts.ports import Accepted, Delayed, Refused, Unknown
from cloud.api.payouts.service import Payouts, PayoutSettings
from cloud.api.payouts.stripe_rail import StripeRail, StripeSettings
from shared.errors import InvalidInput, Unavailable

NOW = 1_796_000_000
DOLLAR = 10**9
OWNER = "acct_00000000000000aa"


@pytest.fixture
async def played():
    stripe = PlayedStripe()
    yield stripe
    assert stripe.faults == []


@pytest.fixture
async def rail(played, clock):
    config = uvicorn.Config(played.app(), port=0, log_config=None, lifespan="off")
    async with serving(config) as url:
        yield StripeRail(
            StripeSettings(
                api_key=KEY,
                webhook_secret=SECRET,
                api_url=url,
                return_url="https://nexus.test/done",
                refresh_url="https://nexus.test/again",
            ),
            clock=clock,
        )


@pytest.fixture
def payout():
    return new_payout(OWNER, Nano(12_340_000_000), "stripe", "acct_1", NOW)


async def test_a_transfer(rail, played, payout):
    """Cents, the connected account, our name for it twice, and the key that makes it safe to repeat."""
    assert await rail.send(payout, again=False) == Accepted("tr_1", arrived=True)
    [call] = played.calls
    assert (call.method, call.path) == ("POST", "/v1/transfers")
    assert call.fields == {
        "amount": "1234",
        "currency": "usd",
        "destination": "acct_1",
        "transfer_group": payout.id,
        "metadata[nexus_payout]": payout.id,
    }
    assert call.headers["idempotency-key"] == f"{payout.id}-0"
    assert await rail.look(_sent(payout, "tr_1")) == Accepted("tr_1", arrived=True)
    assert played.calls[-1].path == "/v1/transfers/tr_1"


def _sent(payout, reference):
    return replace(payout, state=State.SENT, reference=reference)


@pytest.mark.parametrize("step", ["lose", "hang up"])
async def test_an_unknown_outcome_pays_once(rail, played, payout, step):
    """The answer was lost: by the same key Stripe repeats it, and after a day the transfer itself is found."""
    played.plan = [step]
    assert isinstance(await rail.send(payout, again=False), Unknown)
    played.forget_keys()
    assert await rail.send(payout, again=True) == Accepted("tr_1", arrived=True)
    assert played.calls[-1].fields == {"transfer_group": payout.id, "limit": "10"}
    assert len(played.transfers) == 1


async def test_the_same_key_again_pays_once(rail, played, payout):
    """Also when nobody looked first."""
    for _ in range(3):
        assert await rail.send(payout, again=False) == Accepted("tr_1", arrived=True)
    assert len(played.transfers) == 1


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ((400, "invalid_request_error", "balance_insufficient"), Delayed),
        ((400, "invalid_request_error", "insufficient_capabilities_for_transfer"), Refused),
        ((400, "invalid_request_error", "account_invalid"), Refused),
        ((401, "invalid_request_error", None), Delayed),
        ((403, "invalid_request_error", "account_invalid"), Delayed),
        ((409, "invalid_request_error", "idempotency_key_in_use"), Unknown),
        ((429, "invalid_request_error", "rate_limit"), Delayed),
        ((500, "api_error", None), Unknown),
        ((503, "api_error", None), Unknown),
    ],
)
async def test_what_errors_say_about_the_money(rail, played, payout, answer, kind):
    """Refused for good only where the owner's account is the reason; in doubt wherever Stripe may have acted."""
    played.plan = [answer]
    outcome = await rail.send(payout, again=False)
    assert isinstance(outcome, kind), outcome
    assert KEY not in str(outcome) and not played.transfers


async def test_no_answer_at_all(payout, clock):
    """Nobody listens there."""
    settings = StripeSettings(
        api_key=KEY, webhook_secret=SECRET, api_url="http://127.0.0.1:1", return_url="x", refresh_url="x"
    )
    rail = StripeRail(settings, clock=clock)
    assert isinstance(await rail.send(payout, again=False), Unknown)
    assert isinstance(await rail.look(_sent(payout, "tr_1")), Unknown)
    with pytest.raises(Unavailable):
        await rail.open_account(OWNER)


async def test_onboarding(rail, played):
    """An account for the owner, a link to Stripe's form, and whether it may be paid."""
    account = await rail.open_account(OWNER)
    [made] = played.calls
    assert made.path == "/v1/accounts" and made.headers["idempotency-key"] == f"account-{OWNER}"
    assert made.fields["capabilities[transfers][requested]"] == "true"
    assert made.fields["metadata[nexus_owner]"] == OWNER
    assert await rail.onboarding_link(account) == f"https://connect.stripe.test/{account}"
    assert played.calls[-1].fields["return_url"] == "https://nexus.test/done"
    assert not await rail.may_be_paid(account)
    played.accounts[account]["capabilities"]["transfers"] = "active"
    assert await rail.may_be_paid(account)


async def test_transfers_that_went_back(rail, played, payout):
    """Whole: the payout failed. In part: a person has to see to it."""
    await rail.send(payout, again=False)
    played.transfers["tr_1"] |= {"amount_reversed": 234}
    assert isinstance(await rail.look(_sent(payout, "tr_1")), Unknown)
    played.transfers["tr_1"] |= {"amount_reversed": 1234, "reversed": True}
    assert isinstance(await rail.look(_sent(payout, "tr_1")), Refused)


async def test_webhooks(rail, played, payout, clock):
    """What Stripe signed, lately, about our transfers."""
    await rail.send(payout, again=False)
    transfer = played.transfers["tr_1"]
    body = event("transfer.created", transfer)
    told = rail.told(body, signature(body, clock.now))
    assert (told.event, told.payout, told.reference, told.reversed) == ("evt_1", payout.id, "tr_1", False)
    back = event("transfer.reversed", transfer | {"reversed": True, "amount_reversed": 1234})
    assert rail.told(back, signature(back, clock.now)).reversed
    other = event("charge.succeeded", {"id": "ch_1", "object": "charge"})
    assert rail.told(other, signature(other, clock.now)) is None
    stranger = event("transfer.created", transfer | {"metadata": {}})
    assert rail.told(stranger, signature(stranger, clock.now)).payout is None


async def test_webhooks_that_are_not_stripes(rail, clock):
    """Another secret, another body, another time, no signature, or nonsense."""
    body = event("transfer.created", {"id": "tr_1"})
    for header in (
        None,
        "",
        "t=1",
        "v1=00",
        "t=x,v1=00",
        signature(body, clock.now, "whsec_other"),
        signature(b"{}", clock.now),
        signature(body, clock.now - 301),
        signature(body, clock.now + 301),
        signature(body, clock.now).replace("v1=", "v0="),
    ):
        with pytest.raises(InvalidInput, match="signed"):
            rail.told(body, header)
    for nonsense in (b"{}", b"[]", b"x", b'{"object": "event"}', b'{"type": "transfer.created", "data": 5}'):
        with pytest.raises(InvalidInput, match="no event"):
            rail.told(nonsense, signature(nonsense, clock.now))
    with pytest.raises(InvalidInput, match="signed"):
        rail.told(b"\xff", signature(b"\xff", clock.now))


async def test_the_whole_way(rail, played, clock):
    """A payout over Stripe whose first answers are lost or refused is paid once."""
    store = MemoryPayouts(MemoryPayoutLedger({OWNER: Nano(100 * DOLLAR)}))
    await store.set_destination(OWNER, "stripe", "acct_1", NOW)
    payouts = Payouts(store, {"stripe": rail}, PayoutSettings(rail="stripe"), clock=clock)
    payout = await payouts.ask(OWNER)
    for by in ("alice", "bob"):
        await payouts.approve(by, payout.id)
    played.plan = [(400, "invalid_request_error", "balance_insufficient"), "lose"]
    for _ in range(4):
        await payouts.work()
        clock.now += 7 * 3600
    paid = await store.get(payout.id)
    assert paid.state is State.PAID and paid.reference == "tr_1" and len(played.transfers) == 1
    keys = [call.headers["idempotency-key"] for call in played.calls if call.method == "POST"]
    assert keys == [f"{payout.id}-0", f"{payout.id}-1"]
