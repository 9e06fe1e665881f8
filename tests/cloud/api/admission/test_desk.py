"""Money, limits and a place together: what is refused leaves no trace, what is let in is settled once."""

import asyncio

import pytest

from cloud.api.accounts.budgets import Budgets
from cloud.api.accounts.charges import Used
from cloud.api.accounts.keys import ApiKey, KeyId, Terms
from cloud.api.accounts.memory import MemoryAccounts
from cloud.api.accounts.money import Nano, pico
from cloud.api.accounts.prices import Price
from cloud.api.admission.desk import Desk
from cloud.api.admission.gate import Gate
from cloud.api.admission.settings import GateSettings
from cloud.api.admission.ticket import TEMPLATE_TOKENS, Ask
from cloud.api.admission.ticket import Terms as Terms_
from cloud.api.ledger.bookkeeper import Bookkeeper
from cloud.api.ledger.memory import MemoryBooks
from shared.errors import InsufficientQuota, RateLimited, Unavailable
from shared.ids import GatewayId

PRICE = Price(pico("0.000001"), pico("0.0000005"), pico("0.000002"))
"""1000, 500 and 2000 nano-dollars."""


def key(id_="key_a", **terms):
    return ApiKey(id=KeyId(id_), start="nx_", terms=Terms(name="a", **terms), created_at=0)


def ask(**fields):
    given = {
        "request_id": "req_1",
        "model": "tiny",
        "path": "/v1/completions",
        "streamed": False,
        "body_bytes": 40,
        "output_limit": 10,
        "choices": 1,
        "context": 1000,
    }
    return Ask(**given | fields)


@pytest.fixture
def settled():
    return []


@pytest.fixture
def budgets():
    return Budgets(MemoryAccounts(), clock=lambda: 0)


@pytest.fixture
def desk(budgets, settled):
    bookkeeper = Bookkeeper(MemoryBooks(MemoryAccounts()), budgets, gateway=GatewayId("gw_test"), clock=lambda: 0)
    gate = Gate(GateSettings(max_streams=2, deadline_s=0.01), clock=lambda: 0)
    return Desk(bookkeeper, gate, {"tiny": PRICE}, clock=lambda: 0, monotonic=lambda: 0, on_settled=settled.append)


async def test_a_settlement_names_its_versions_and_its_nodes_shares(budgets):
    """Those of when the request was let in; a second settlement changes neither charge nor shares."""
    asked = []

    def shares(price, charge, claims):
        asked.append((price, charge.cost, claims))
        return ("share",) * len(claims)

    desk = Desk(
        Bookkeeper(MemoryBooks(MemoryAccounts()), budgets, gateway=GatewayId("gw_test"), clock=lambda: 0),
        Gate(GateSettings(), clock=lambda: 0),
        {"tiny": PRICE},
        clock=lambda: 0,
        monotonic=lambda: 0,
        terms=lambda model: Terms_(f"price-of-{model}", "rates-1", shares),
    )
    ticket = await desk.admit(key(), ask())
    ticket.settle(Used(8, 2, 5), "answered", ["claim"])
    first = ticket.settlement
    ticket.settle(Used(8, 2, 500), "answered", ["claim", "another", "forged"])
    assert ticket.settlement is first and len(asked) == 1
    assert (first.price_version, first.rates_version, first.shares) == ("price-of-tiny", "rates-1", ("share",))
    assert asked == [(PRICE, first.charge.cost, ["claim"])] and first.target == "tiny"


async def test_settled_once(desk, budgets, settled):
    """The first settlement counts: cost, usage, tokens and place."""
    limited = key(tokens_per_minute=600, monthly_budget=Nano(10**9))
    ticket = await desk.admit(limited, ask())
    ticket.settle(Used(8, 2, 5), "answered")
    ticket.settle(Used(800, 0, 500), "left")
    assert ticket.charge.cost == 6 * 1000 + 2 * 500 + 5 * 2000 == budgets.spent(limited.id)
    assert settled == [ticket.charge] and ticket.charge.completion_tokens == 5
    assert dict(desk.headers(limited))[b"x-ratelimit-remaining-tokens"] == b"587"
    assert desk.gate.requests == 0


async def test_outcomes(desk):
    """Who left pays for what was committed; a failure of ours is free; a credit is taken off and never paid out."""
    for outcome, credit, cost in (
        ("left", 0, 11_000),
        ("failed", 0, 0),
        ("answered", 1000, 10_000),
        ("left", 10**9, 0),
    ):
        ticket = await desk.admit(key(), ask(credit=Nano(credit)))
        assert ticket.cost(Used(1, 0, 5)) == 11_000
        ticket.settle(Used(1, 0, 5), outcome)
        assert (ticket.charge.cost, ticket.charge.outcome) == (cost, outcome)


async def test_nothing_is_begun_that_the_budget_cannot_pay(desk, budgets):
    """402 from the worst case, before anything is counted; a smaller request still fits."""
    worst = (40 + TEMPLATE_TOKENS) * 1000 + 10 * 2000
    poor = key(monthly_budget=Nano(worst), tokens_per_minute=100)
    with pytest.raises(InsufficientQuota):
        await desk.admit(poor, ask(output_limit=11))
    with pytest.raises(InsufficientQuota):
        await desk.admit(poor, ask(output_limit=None))
    ticket = await desk.admit(poor, ask())
    assert dict(desk.headers(poor))[b"x-ratelimit-remaining-tokens"] == b"80"
    with pytest.raises(InsufficientQuota):
        await desk.admit(poor, ask())
    ticket.settle(Used(), "answered")
    await desk.admit(poor, ask())
    assert budgets.spent(poor.id) == 0


async def test_refusals_leave_no_trace(desk, budgets):
    """After 429 and 503, budget, limits and places are as before."""
    limited = key(monthly_budget=Nano(10**9), tokens_per_minute=300, concurrent_streams=2)
    running = await desk.admit(limited, ask(choices=2))
    with pytest.raises(RateLimited):
        await desk.admit(limited, ask())
    with pytest.raises(Unavailable):
        await desk.admit(key("key_b", tokens_per_minute=100), ask())
    assert dict(desk.headers(key("key_b")))[b"x-ratelimit-remaining-tokens"] == b"100"
    assert dict(desk.headers(limited))[b"x-ratelimit-remaining-tokens"] == b"270"
    running.settle(Used(), "failed")
    other = await desk.admit(limited, ask(choices=2))
    assert budgets._held == {limited.id: other._hold.amount} and desk.gate.requests == 1


async def test_every_request_counts(desk):
    """Also one that is refused later, or answered from what is kept."""
    limited = key(requests_per_minute=2)
    desk.count(limited)
    desk.count(limited)
    with pytest.raises(RateLimited):
        desk.count(limited)
    assert dict(desk.headers(limited))[b"x-ratelimit-remaining-requests"] == b"0"


async def test_gone_while_waiting(desk, budgets):
    """A caller who leaves the queue takes everything along."""
    limited = key(monthly_budget=Nano(10**9), tokens_per_minute=300)
    running = await desk.admit(key("key_b"), ask(choices=2))
    task = asyncio.create_task(desk.admit(limited, ask()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    running.settle(Used(), "answered")
    assert not budgets._held and desk.gate.requests == desk.gate.waiting == 0


def test_estimates_and_bounds():
    """A bound is never below what can happen; without a limit the whole context counts."""
    assert ask(output_limit=None).bounds().completion == 1000
    assert ask(context=None, output_limit=None).estimate() == 10 + 256
    assert ask(context=None, output_limit=None).bounds().completion >= 10**6
    assert ask(body_bytes=10**6, choices=3, output_limit=5000).estimate() == 1000 + 3 * 1000
    assert ask(body_bytes=0, output_limit=0).estimate() == 1
