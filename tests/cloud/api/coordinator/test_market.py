"""The market behind real sockets: asks and energy from nodes, steps from verifiers, a minute's end, settlements."""

from dataclasses import dataclass
from typing import Any

from cloud.api.accounts.charges import Charge
from cloud.api.accounts.keys import KeyId
from cloud.api.accounts.money import Nano, Pico
from cloud.api.accounts.prices import Price
from cloud.api.market.keeper import MarketKeeper
from cloud.api.market.memory import MemoryMarket
from cloud.api.market.pricebook import PriceVersion, Rates
from cloud.api.market.state import Market
from cloud.api.metrics import Metrics
from cloud.api.trading import Trading
from shared.ids import AccountId, ModelName, NodeId, StreamId
from shared.wire.messages import Beat, Demand, DemandReason, Open

BIG = ModelName("big")
PRICE = Price(completion=Pico(600_000))


@dataclass
class Clock:
    """Seconds since 1970."""

    now: float = 1_796_000_041.0

    def __call__(self) -> float:
        return self.now


def owner(_: NodeId) -> AccountId | None:
    return AccountId("acct_1")


async def begin(world: Any, clock: Clock) -> tuple[Any, Any, MarketKeeper, Trading, Metrics]:
    """A gateway with a market, a keeper and one verifier."""
    port = await world.port()
    gateway = await world.gateway(port, market=Market(), owner=owner, wall=clock)
    keeper = MarketKeeper(MemoryMarket(), {"big": PRICE}, Rates(), clock=clock)
    metrics = Metrics(gateway.snapshot)
    trading = Trading(keeper, metrics, gateway, clock)
    await keeper.start()
    world.stack.push_async_callback(keeper.stop)
    return port, gateway, keeper, trading, metrics


async def test_a_minute_of_the_market_from_end_to_end(world: Any) -> None:
    """A node's ask and energy arrive, its work is claimed, settled, and written down with the minute's price."""
    clock = Clock()
    port, gateway, keeper, trading, metrics = await begin(world, clock)
    market = gateway.broker.market
    node = await (await world.node()).join(ask=20)
    told = await node.next(Demand)
    assert told.reason is DemandReason.PROBATION and "unpaid" in told.message
    assert market.ask(node.id) == 20_000 and market.traders[node.id].owner == "acct_1"
    for _ in range(100):
        market.reputation(NodeId(node.id), BIG).compared(3, missed=True, baseline=0)

    handle = gateway.register(StreamId("s"))
    await port.open("s")
    opened = await node.next(Open)
    await node.send(Beat(seq=1, energy=5.0))
    await node.draft(opened.stream, 3, (4, 5))
    await port.verify("s", 3, (4, 5, 6), 2, 2, node.id)
    await node.send(Beat(seq=2, energy=9.0))
    await world.until(lambda: market.traders[node.id].meter.per_token is not None)
    await port.finish("s")
    assert await handle.closed(20)
    [claim] = handle.figures().claims
    assert (claim.work.node, claim.work.accepted, claim.work.marginal, claim.owner) == (node.id, 2, 2, "acct_1")

    charge = Charge(
        request_id="req_1",
        key_id=KeyId("key_a"),
        at=int(clock.now),
        model="big",
        path="/v1/completions",
        streamed=False,
        outcome="answered",
        prompt_tokens=3,
        cached_tokens=0,
        completion_tokens=10_000,
        cost=Nano(6_000_000),
    )
    terms = trading.terms("big")
    [share] = terms.shares(PRICE, charge, handle.figures().claims)
    assert share.amount == 2 * claim.price // 1000 and terms.price_version.startswith("settings-")

    clock.now += 60
    gateway.tick()
    await keeper.flush()
    [row] = await keeper.store.minutes(owner=AccountId("acct_1"))
    assert (row.node, row.drafted, row.marginal, row.earned) == (node.id, 2, 2, share.amount)
    assert row.millijoules == 4_000
    [spot] = await keeper.store.spots(BIG)
    assert spot.version == claim.price_version and spot.price == claim.price
    text = metrics.render().decode()
    assert f'nexus_spot_price_picodollars{{model="big"}} {float(spot.price)}' in text
    assert f"nexus_node_shares_nanodollars_total {float(share.amount)}" in text
    assert [standing.node for standing in await keeper.store.standings()] == [node.id]


async def test_a_price_set_by_command_reaches_the_broker(world: Any) -> None:
    """With the next reading of the book; what is settled later names it."""
    clock = Clock()
    _, gateway, keeper, trading, _ = await begin(world, clock)
    await keeper.store.add([PriceVersion("summer", "big", 0, Price(completion=Pico(1)))], int(clock.now))
    await keeper.refresh()
    assert gateway.broker.market.book.price("big", clock.now).version == "summer"
    assert trading.terms("big").price_version == "summer"


async def test_without_a_market_nobody_is_paid(world: Any) -> None:
    """Work is counted all the same, and settlements name the customer's price."""
    port = await world.port()
    gateway = await world.gateway(port)
    node = await (await world.node()).join()
    handle = gateway.register(StreamId("s"))
    await port.open("s")
    await node.next(Open)
    await port.verify("s", 3, (4, 5, 6), 2, 2, node.id)
    await port.finish("s")
    assert await handle.closed(20)
    figures = handle.figures()
    assert [work.marginal for work in figures.work] == [2]
    keeper = MarketKeeper(MemoryMarket(), {"big": PRICE}, Rates())
    terms = Trading(keeper, Metrics(gateway.snapshot), None, lambda: 0.0).terms("big")
    assert terms.shares(PRICE, None, figures.claims) == () and terms.price_version.startswith("settings-")  # type: ignore[arg-type]
