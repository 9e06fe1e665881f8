"""Every market store keeps the same promises."""

from dataclasses import replace

import pytest

from cloud.api.accounts.money import Nano, Pico
from cloud.api.accounts.prices import Price
from cloud.api.market.keeper import MarketKeeper, changed
from cloud.api.market.minutes import MinuteReport, NodeMinute, SpotMinute
from cloud.api.market.ports import MarketStore
from cloud.api.market.pricebook import PriceBook, PriceVersion, Rates, RatesVersion, from_settings
from cloud.api.market.reputation import Quarantine, Stage, Standing
from shared.ids import AccountId, ModelName, NodeId
from shared.wire.messages import DemandReason

NOW = 1_796_000_000
BIG = ModelName("big")
PRICE = Price(Pico(1), Pico(2), Pico(500_000))
SPOT = SpotMinute(
    model=BIG,
    minute=NOW,
    version="spot-1-gw",
    price=Pico(40_000),
    value=Pico(90_000),
    setter=None,
    nodes=2,
    demand=9,
    rates_version="r1",
)
MINUTE = NodeMinute(
    node=NodeId("n" * 32),
    owner=AccountId("acct_1"),
    minute=NOW,
    reason=DemandReason.SERVING,
    words="It drafts.",
    streams=4,
    drafted=100,
    accepted=70,
    marginal=60,
    earned=Nano(2**40),
    millijoules=None,
)
STANDING = Standing(
    node=NodeId("n" * 32),
    model=BIG,
    stage=Stage.PROVEN,
    hits=61_234,
    misses=20_000,
    gain=-5,
    compared=400,
    p50_ms=30,
    p90_ms=None,
    met=9,
    missed=1,
    kept=3,
    broken=0,
    drafted=500,
    accepted=300,
    marginal=250,
    updated_at=NOW,
)


async def test_versions_come_back_as_they_were_added(store: MarketStore) -> None:
    """Prices and rates, in order; adding one twice changes nothing."""
    versions = [
        PriceVersion("a", "big", 0, PRICE),
        PriceVersion("b", "big", NOW, Price()),
        RatesVersion("r1", 0, Rates(verifier=Pico(10**9))),
    ]
    await store.add(versions[:1], NOW)
    await store.add(versions, NOW + 1)
    book = await store.book()
    assert book == PriceBook(tuple(versions[:2]), (versions[2],))  # type: ignore[arg-type]
    assert book.price("big", NOW - 1).price == PRICE and book.price("big", NOW).version == "b"


async def test_a_version_is_never_changed(store: MarketStore) -> None:
    """The same name with another content is refused, and nothing of that call is kept."""
    await store.add([RatesVersion("r1", 0, Rates())], NOW)
    with pytest.raises(ValueError, match="never changed"):
        await store.add([PriceVersion("a", "big", 0, PRICE), RatesVersion("r1", 0, Rates(share=1))], NOW)
    assert await store.book() == PriceBook((), (RatesVersion("r1", 0, Rates()),))


async def test_a_minute_is_stored_once(store: MarketStore) -> None:
    """Told twice it is there once; what a later one says of a node replaces what was known."""
    report = MinuteReport(NOW, "gw", (SPOT,), (MINUTE,), (STANDING,), (Quarantine(NodeId("q"), NOW + 60, 2, "Bad."),))
    await store.record(report)
    await store.record(report)
    assert await store.spots(BIG) == [SPOT]
    assert await store.minutes() == [MINUTE]
    assert await store.standings() == [STANDING]
    assert await store.quarantines(NOW) == [Quarantine(NodeId("q"), NOW + 60, 2, "Bad.")]
    assert not await store.quarantines(NOW + 60)
    await store.record(MinuteReport(NOW + 60, "gw", standings=(replace(STANDING, hits=1, stage=Stage.PROBATION),)))
    [standing] = await store.standings()
    assert (standing.hits, standing.stage) == (1, Stage.PROBATION)


async def test_minutes_are_found_by_owner_and_by_node(store: MarketStore) -> None:
    """Newest first; old ones can be forgotten, prices never."""
    later = replace(MINUTE, minute=NOW + 60, earned=Nano(7))
    other = replace(MINUTE, node=NodeId("m"), owner=AccountId("acct_2"), millijoules=3)
    await store.record(MinuteReport(NOW, "gw", (SPOT,), (MINUTE, other)))
    await store.record(MinuteReport(NOW + 60, "gw", (), (later,)))
    assert await store.minutes(owner=AccountId("acct_1")) == [later, MINUTE]
    assert await store.minutes(owner=AccountId("acct_1"), limit=1) == [later]
    assert await store.minutes(node=NodeId("m"), owner=AccountId("acct_2")) == [other]
    assert await store.minutes(node=NodeId("m"), owner=AccountId("acct_1")) == []
    await store.forget(NOW + 60)
    assert await store.minutes() == [later] and await store.spots(BIG) == [SPOT]


async def test_the_settings_file_seeds_versions_and_commands_outlive_a_restart(store: MarketStore) -> None:
    """A price set by command counts until the settings change; a model that left them is free."""

    async def start(now: int, prices: dict[str, Price]) -> PriceBook:
        keeper = MarketKeeper(store, prices, Rates(), clock=lambda: now)
        await keeper.start()
        await keeper.stop()
        return keeper.book

    first = await start(NOW, {"big": PRICE})
    assert first.price("big", 0).version.startswith("settings-")
    await store.add([PriceVersion("summer", "big", NOW + 5, Price(completion=Pico(9)))], NOW + 5)
    assert (await start(NOW + 10, {"big": PRICE})).price("big", NOW + 10).version == "summer"
    dearer = await start(NOW + 20, {"big": replace(PRICE, completion=Pico(700_000))})
    assert dearer.price("big", NOW + 20).price.completion == 700_000
    back = await start(NOW + 30, {"big": PRICE})
    assert back.price("big", NOW + 30).price == PRICE and back.price("big", NOW + 20).price.completion == 700_000
    assert (await start(NOW + 40, {})).price("big", NOW + 40).price == Price()
    assert len((await store.book()).rates) == 1


def test_the_same_settings_name_the_same_version() -> None:
    """In every gateway; any change names another."""
    one, same, other = (from_settings({"big": Price(completion=Pico(n))}, Rates()) for n in (5, 5, 6))
    assert one == same and one.prices[0].version != other.prices[0].version
    assert one.rates[0].version == other.rates[0].version
    assert changed(one, one, NOW) == []


async def test_minutes_wait_for_a_store_that_does_not_answer(store: MarketStore) -> None:
    """They are stored when the gateway stops, at the latest."""
    keeper = MarketKeeper(store, {}, Rates(), clock=lambda: float(NOW))
    await keeper.start()
    keeper.note(MinuteReport(NOW, "gw", nodes=(MINUTE,)))
    assert keeper.waiting == 1
    await keeper.stop()
    assert keeper.waiting == 0 and await store.minutes() == [MINUTE]
