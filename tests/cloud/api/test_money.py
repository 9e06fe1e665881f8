"""Prepaid money through the real gateway: asked for before the work, taken after it, never from the house's keys."""

from dataclasses import replace

import openai
import pytest
from support.ledger import ALICE, amounts
from support.waiting import until

from cloud.api.accounts.keys import Terms
from cloud.api.accounts.money import Nano
from cloud.api.audit.entry import SYSTEM
from cloud.api.identity.account import created, new_account
from cloud.api.ledger import entries
from cloud.api.settings import PriceOptions

GOOD = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
COST = 9000
"""Of the fake verifier's whole answer, nano-dollars: five prompt tokens and two of output."""


@pytest.fixture
def extra():
    return {"prices": {"tiny": PriceOptions(prompt="0.000001", completion="0.000002")}}


@pytest.fixture
async def alice(gateway):
    """A client with a key of Alice's account, which has no money yet."""
    account = replace(new_account("alice@example.com", "Alice", ["developer"], 0), id=ALICE)
    await gateway.app.state.identity.store.add_account(account, created(account, SYSTEM))
    new = await gateway.app.state.accounts.create(Terms(name="alice"), ALICE)
    return gateway.client.with_options(api_key=new.secret)


async def of(gateway):
    return amounts(await gateway.app.state.books.balances())


async def test_prepaid_money(gateway, alice):
    """402 with what is there and what is needed; with enough money the answer costs what it used, exactly."""
    with pytest.raises(openai.APIStatusError, match=r"account has \$0 left") as caught:
        await alice.chat.completions.create(**GOOD)
    assert caught.value.status_code == 402 and caught.value.body["code"] == "insufficient_quota"
    await gateway.app.state.books.post(entries.top_up(ALICE, Nano(10**9), "one"))
    for _ in range(2):
        assert (await alice.chat.completions.create(**GOOD)).choices[0].message.content == "Hello"
    async for _ in await alice.chat.completions.create(**GOOD, stream=True):
        pass
    await until(lambda: not gateway.app.state.desk.gate.requests)
    await gateway.app.state.bookkeeper.flush()
    left = {"customer:acct_alice:available": 10**9 - 3 * COST, "house:revenue": 3 * COST, "house:cash": -(10**9)}
    assert await of(gateway) == left
    assert (await gateway.app.state.books.audit()).problems() == []


async def test_a_failure_of_ours_costs_nothing(gateway, alice):
    """What was set aside is there again."""
    await gateway.app.state.books.post(entries.top_up(ALICE, Nano(10**9), "one"))
    gateway.verifier.break_after = 1
    with pytest.raises(openai.APIError):
        await alice.chat.completions.create(**GOOD)
    await until(lambda: not gateway.app.state.desk.gate.requests)
    await gateway.app.state.bookkeeper.flush()
    assert await of(gateway) == {"customer:acct_alice:available": 10**9, "house:cash": -(10**9)}


async def test_keys_of_the_deployment_are_never_asked(gateway):
    """They are charged as use of the house."""
    await gateway.client.chat.completions.create(**GOOD)
    await until(lambda: not gateway.app.state.desk.gate.requests)
    await gateway.app.state.bookkeeper.flush()
    assert await of(gateway) == {"house:use": -COST, "house:revenue": COST}


class TestRestarted:
    """A gateway with a database and a spool."""

    @pytest.fixture
    def extra(self, tmp_path):
        prices = {"tiny": PriceOptions(prompt="0.000001", completion="0.000002")}
        return {"prices": prices, "database": str(tmp_path / "gateway.db")}

    async def test_settlements_are_spooled_beside_the_database(self, gateway, tmp_path):
        """And posted from there."""
        [spool] = (tmp_path / "gateway.db.spool").iterdir()
        await gateway.client.chat.completions.create(**GOOD)
        await until(lambda: spool.stat().st_size > 100)
        await gateway.app.state.bookkeeper.flush()
        assert await of(gateway) == {"house:use": -COST, "house:revenue": COST}
