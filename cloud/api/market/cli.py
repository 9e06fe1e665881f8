"""`nexus market`: the price book on the command line, what was paid lately, and a simulated day."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from cloud.api.accounts.money import NANO_PLACES, PICO_PLACES, Nano, Pico, dollars, parse_dollars, pico
from cloud.api.accounts.prices import Price
from cloud.api.market.pricebook import PriceVersion, Rates, RatesVersion
from cloud.api.market.profile import read_profile
from cloud.api.market.simulation import MINUTES, Hour, Scenario, run
from cloud.api.market.sql import SqlMarket
from cloud.api.store.commands import (
    ConfigOption,
    DatabaseOption,
    JsonOption,
    on_database,
    print_json,
    print_table,
)
from shared.errors import ConfigError, InvalidInput
from shared.ids import ModelName

app = typer.Typer(
    help="What customers pay and what nodes are paid: versions of prices and rates, spot prices, a simulated day.",
    no_args_is_help=True,
)
T = TypeVar("T")
H100_PROFILE = {1: 18_900_000, 8: 19_500_000, 32: 21_700_000, 128: 30_300_000, 512: 64_900_000, 1024: 111_000_000}
"""A 70B model in FP8 on two H100 (bench/data/step-cost-2xh100-70b-fp8.json tells the source)."""
SinceOption = Annotated[
    int | None, typer.Option(help="When it takes effect, in seconds since 1970; without it at once.")
]


@app.command()
def prices(as_json: JsonOption = False, config: ConfigOption = None, database: DatabaseOption = None) -> None:
    """List every version of every price and of the rates; those in force are marked.

    Example: `nexus market prices --json`
    """
    book = _run(config, database, lambda store: store.book())
    now = time.time()
    rows: list[dict[str, Any]] = [
        {
            "version": version.version,
            "model": version.model,
            "since": version.since,
            "in_force": book.price(version.model, now) == version,
            "prompt": dollars(version.price.prompt, PICO_PLACES),
            "cached_prompt": dollars(version.price.cached, PICO_PLACES),
            "completion": dollars(version.price.completion, PICO_PLACES),
        }
        for version in book.prices
    ]
    rates = [_rates_object(version, book.rate(now)) for version in book.rates]
    if as_json:
        print_json({"prices": rows, "rates": rates})
        return
    if not rows:
        typer.echo("There is no price yet: set one with `nexus market set-price`, or start the gateway with `prices`.")
    print_table(
        ("", "model", "version", "since", "prompt", "cached", "completion (dollars a token)"),
        [
            (
                "*" if row["in_force"] else "",
                row["model"],
                row["version"],
                _day(row["since"]),
                row["prompt"],
                row["cached_prompt"],
                row["completion"],
            )
            for row in rows
        ],
    )
    for rate in rates:
        typer.echo(f"\n{'* ' if rate['in_force'] else ''}rates {rate['version']}, since {_day(rate['since'])}")
        for name in ("share", "hold_days", "verifier_per_hour", "tariff_per_kwh", "millijoules", "margin"):
            typer.echo(f"  {name:18} {rate[name]}")


@app.command("set-price")
def set_price(
    model: Annotated[str, typer.Argument(help="The model's name, as requests give it.")],
    prompt: Annotated[str, typer.Option(help="Dollars for a prompt token, like 0.0000002.")],
    completion: Annotated[str, typer.Option(help="Dollars for an output token, like 0.0000006.")],
    cached: Annotated[
        str | None, typer.Option(help="Dollars for a prompt token that was cached. (default: as --prompt)")
    ] = None,
    version: Annotated[str | None, typer.Option(help="Name of the version. (default: made from the time)")] = None,
    since: SinceOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
) -> None:
    """Add a version of a model's price. Nothing is overwritten: requests are settled by the version of their time.

    A running gateway uses it within half a minute. It counts until another version takes effect, from here or from a
    change of `prices` in the settings file.

    Example: `nexus market set-price big --prompt 0.0000002 --completion 0.0000006`
    """
    now = int(time.time())
    price = Price(_pico(prompt), _pico(cached if cached is not None else prompt), _pico(completion))
    added = PriceVersion(_version(version, now), model, now if since is None else since, price)
    _add(config, database, added, now)
    typer.echo(f"{added.version}: {model} costs ${completion} an output token from {_day(added.since)} on.")


@app.command()
def rates(
    share: Annotated[int | None, typer.Option(help="Most that nodes get of a request's output, basis points.")] = None,
    verifier: Annotated[str | None, typer.Option(help="Dollars for an hour of a verifier.")] = None,
    tariff: Annotated[str | None, typer.Option(help="Dollars for a kilowatt-hour, assumed of owners.")] = None,
    millijoules: Annotated[int | None, typer.Option(help="Of an accepted token, assumed of nodes.")] = None,
    margin: Annotated[int | None, typer.Option(help="Added to asks made from energy, basis points.")] = None,
    version: Annotated[str | None, typer.Option(help="Name of the version. (default: made from the time)")] = None,
    since: SinceOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
) -> None:
    """Add a version of the rates: those given change, the others stay as they are in force. Without any, print them.

    Example: `nexus market rates --share 5500 --verifier 8.80`
    """
    now = int(time.time())
    current = _run(config, database, lambda store: store.book()).rate(now)
    given: dict[str, Any] = {"share": share, "millijoules": millijoules, "margin": margin}
    if verifier is not None:
        given["verifier"] = Pico(_money(verifier, PICO_PLACES) // 3600)
    if tariff is not None:
        given["tariff"] = Nano(_money(tariff, NANO_PLACES))
    given = {name: value for name, value in given.items() if value is not None}
    if not given:
        print_json(_rates_object(current, current))
        return
    try:
        changed: Rates = replace(current.rates, **given)
    except ValueError as error:
        raise InvalidInput(f"These rates cannot be: {error}.") from None
    added = RatesVersion(_version(version, now), now if since is None else since, changed)
    _add(config, database, added, now)
    typer.echo(f"{added.version} takes effect on {_day(added.since)}.")


@app.command()
def spot(
    model: Annotated[str, typer.Argument(help="The model's name.")],
    limit: Annotated[int, typer.Option(min=1, help="How many minutes.")] = 60,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    database: DatabaseOption = None,
) -> None:
    """What a marginal token was paid in the latest minutes, what it was worth, and who set the price.

    Example: `nexus market spot big --limit 10`
    """
    found = _run(config, database, lambda store: store.spots(ModelName(model), limit=limit))
    if as_json:
        print_json(found)
        return
    if not found:
        typer.echo(f"Nothing was traded for {model[:60]!r}: is `market.enabled` set, and was there a request?")
        return
    print_table(
        ("minute", "price $/M", "value $/M", "set by", "streams", "nodes"),
        [
            (
                time.strftime("%Y-%m-%d %H:%M", time.gmtime(each.minute)),
                _per_million(each.price),
                _per_million(each.value),
                each.setter or "the value",
                str(each.demand),
                str(each.nodes),
            )
            for each in found
        ],
    )


@app.command()
def simulate(
    nodes: Annotated[int, typer.Option(min=1, max=10_000, help="Machines that share at some time of the day.")] = 100,
    demand: Annotated[int, typer.Option(min=1, max=100_000, help="Streams at once in the busiest minute.")] = 400,
    verifiers: Annotated[int, typer.Option(min=1, help="Verifiers that the streams are spread over.")] = 4,
    dollars_per_hour: Annotated[str, typer.Option(help="What one verifier costs in an hour.")] = "4.40",
    tariff: Annotated[str, typer.Option(help="Usual price of a kilowatt-hour, dollars.")] = "0.15",
    asks: Annotated[int, typer.Option(min=0, help="Asks, in per cent of energy and margin.")] = 100,
    k: Annotated[int, typer.Option(min=1, max=16, help="Draft tokens that a step checks.")] = 4,
    minutes: Annotated[int, typer.Option(min=1, help="Length of the simulation.")] = MINUTES,
    step_cost: Annotated[
        Path | None, typer.Option(help="Step costs of your verifier (`nexus verifier serve --step-cost`).")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same day.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Run a made-up day through the real market: machines with mixed GPUs, links and tariffs, and a day's demand.

    Each line is an hour. *price* is what a marginal token (one beyond what prompt lookup gets for free) was paid, and
    *value* the verifier time that it saved; both in dollars per million tokens. *served* is the share of streams that
    had a node. *surplus* is what all sides gain together: verifier time saved less electricity. *profit* is what owners
    keep of it after electricity.

    What to look at: where demand is above what nodes carry, the price is the value, and owners gain; where nodes are
    many, it falls to the dearest ask that is needed. As verifiers fill up, a token saves less time: with more streams
    for each verifier, value and price fall, until drafting stops paying.

    Examples:

      nexus market simulate

      nexus market simulate --nodes 1000 --demand 400      # many nodes: a low price

      nexus market simulate --demand 4000 --verifiers 4    # full verifiers: drafts are worth little

      nexus market simulate --asks 300                     # owners who want three times their cost
    """
    rates = Rates(
        verifier=Pico(_money(dollars_per_hour, PICO_PLACES) // 3600), tariff=Nano(_money(tariff, NANO_PLACES))
    )
    try:
        profile = read_profile(step_cost) if step_cost is not None else H100_PROFILE
    except ValueError as error:
        raise ConfigError(f"{error}.") from None
    scenario = Scenario(
        nodes=nodes, demand=demand, verifiers=verifiers, k=k, minutes=minutes, seed=seed, ask_scale=asks
    )
    hours = list(run(scenario, rates, profile))
    if as_json:
        print_json(hours)
        return
    head = (
        "hour",
        "streams",
        "nodes",
        "value $/M",
        "price $/M",
        "served",
        "M tokens",
        "paid $",
        "profit $",
        "surplus $",
    )
    print_table(head, [_hour(hour) for hour in hours])
    tokens = sum(hour.tokens for hour in hours)
    paid, profit = sum(hour.paid for hour in hours), sum(hour.profit for hour in hours)
    surplus = sum(hour.surplus for hour in hours)
    typer.echo(
        f"\nIn all: {tokens / 1e6:.1f} M marginal tokens; owners were paid ${paid / 1e9:.2f} and kept "
        f"${profit / 1e9:.2f} after electricity; everybody together gained ${surplus / 1e9:.2f}."
    )


def _hour(hour: Hour) -> tuple[str, ...]:
    return (
        f"{hour.hour:02}",
        str(hour.demand // hour.minutes),
        str(hour.online // hour.minutes),
        _per_million(Pico(hour.value // hour.minutes)),
        _per_million(Pico(hour.price // hour.minutes)),
        f"{hour.served / hour.demand:.0%}",
        f"{hour.tokens / 1e6:.2f}",
        f"{hour.paid / 1e9:.3f}",
        f"{hour.profit / 1e9:.3f}",
        f"{hour.surplus / 1e9:.3f}",
    )


def _per_million(price: Pico) -> str:
    return f"{price / 1e6:.4f}"


def _rates_object(version: RatesVersion, current: RatesVersion) -> dict[str, Any]:
    rates = version.rates
    return {
        "version": version.version,
        "since": version.since,
        "in_force": version == current,
        "share": rates.share,
        "hold_days": rates.hold_days,
        "verifier_per_hour": dollars(rates.verifier * 3600, PICO_PLACES),
        "tariff_per_kwh": dollars(rates.tariff),
        "millijoules": rates.millijoules,
        "margin": rates.margin,
    }


def _version(given: str | None, now: int) -> str:
    if given is None:
        return time.strftime("v%Y%m%d-%H%M%S", time.gmtime(now))
    if not 1 <= len(given) <= 60 or not given.isascii() or not given.isprintable() or " " in given:
        raise InvalidInput("A version is named by 1 to 60 printable ASCII characters without spaces.")
    return given


def _pico(text: str) -> Pico:
    try:
        return pico(text)
    except ValueError as error:
        raise InvalidInput(f"{error}.") from None


def _money(text: str, places: int) -> int:
    try:
        return parse_dollars(text, places)
    except ValueError as error:
        raise InvalidInput(f"{error}.") from None


def _add(config: Path | None, database: str | None, version: PriceVersion | RatesVersion, now: int) -> None:
    try:
        _run(config, database, lambda store: store.add([version], now))
    except ValueError as error:
        raise InvalidInput(f"Nothing was changed: {error}.") from None


def _run(config: Path | None, address: str | None, work: Callable[[SqlMarket], Awaitable[T]]) -> T:
    return on_database(config, address, lambda database: work(SqlMarket(database)))


def _day(at: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(at)) if at else "the beginning"
