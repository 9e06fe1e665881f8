"""What customers pay and the rates that payouts follow, as versions that are never changed: later ones replace them."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from cloud.api.accounts.money import Nano, Pico
from cloud.api.accounts.prices import FREE, Price

WHOLE = 10_000
"""Basis points of the whole."""
NO_PRICE = "free"
"""Version that a settlement names where the book has no price for its model."""
_UNKNOWN, _TARIFF = Pico(0), Nano(150_000_000)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """What payouts and asks are computed with; integers, as all money is."""

    share: int = 6_000
    """Basis points of a request's output cost that its nodes may get at most."""
    hold_days: int = 7
    """How long an owner's money is pending: the ledger's setting, noted with the rates that it went with."""
    verifier: Pico = _UNKNOWN
    """Pico-dollars for one second of a verifier; 0 = not known, and `worth` falls back on the customer's price."""
    tariff: Nano = _TARIFF
    """Nano-dollars for a kilowatt-hour, assumed of owners who did not say."""
    millijoules: int = 730
    """For one accepted token, assumed until a node's energy counter has told: 350 W at 480 tokens a second."""
    margin: int = 2_000
    """Basis points that an ask made from energy adds to it, for wear and trouble."""

    def __post_init__(self) -> None:
        if not 0 <= self.share <= WHOLE:
            raise ValueError(f"share must be from 0 to {WHOLE} basis points")
        for name in ("hold_days", "verifier", "tariff", "millijoules", "margin"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative")


@dataclass(frozen=True, slots=True)
class PriceVersion:
    """What tokens of one model cost from `since` on, in seconds since 1970."""

    version: str
    model: str
    since: int
    price: Price


@dataclass(frozen=True, slots=True)
class RatesVersion:
    version: str
    since: int
    rates: Rates


@dataclass(frozen=True, slots=True)
class PriceBook:
    """All versions. Of those whose time has come the latest counts; of several with one time, the one added last."""

    prices: tuple[PriceVersion, ...] = ()
    rates: tuple[RatesVersion, ...] = ()
    _by_model: dict[str, tuple[PriceVersion, ...]] = field(init=False, compare=False, repr=False, hash=False)
    _in_time: tuple[RatesVersion, ...] = field(init=False, compare=False, repr=False, hash=False)

    def __post_init__(self) -> None:
        by_model: dict[str, list[PriceVersion]] = {}
        for version in sorted(self.prices, key=lambda v: v.since):
            by_model.setdefault(version.model, []).append(version)
        object.__setattr__(self, "_by_model", {model: tuple(found) for model, found in by_model.items()})
        object.__setattr__(self, "_in_time", tuple(sorted(self.rates, key=lambda v: v.since)))

    def price(self, model: str, at: float) -> PriceVersion:
        """A model without a price is free."""
        found = [version for version in self._by_model.get(model, ()) if version.since <= at]
        return found[-1] if found else PriceVersion(NO_PRICE, model, 0, FREE)

    def rate(self, at: float) -> RatesVersion:
        """The defaults of `Rates` where nobody has set any."""
        found = [version for version in self._in_time if version.since <= at]
        return found[-1] if found else RatesVersion("default", 0, Rates())

    def models(self) -> tuple[str, ...]:
        return tuple(sorted(self._by_model))

    def adding(self, *versions: PriceVersion | RatesVersion) -> "PriceBook":
        """With these as well. Raises `ValueError` for a version that is there already and says something else."""
        prices, rates = list(self.prices), list(self.rates)
        for version in versions:
            known = self._named(version)
            if known is not None and known != version:
                raise ValueError(f"version {version.version!r} is in use; a version is never changed")
            if known is None:
                (prices if isinstance(version, PriceVersion) else rates).append(version)  # type: ignore[arg-type]
        return PriceBook(tuple(prices), tuple(rates))

    def _named(self, version: PriceVersion | RatesVersion) -> PriceVersion | RatesVersion | None:
        if isinstance(version, PriceVersion):
            return next((v for v in self.prices if (v.version, v.model) == (version.version, version.model)), None)
        return next((v for v in self.rates if v.version == version.version), None)


def settings_version(content: Iterable[tuple[str, object]]) -> str:
    """`settings-<digest>`: the same settings name the same version in every gateway and after every restart."""
    text = json.dumps(sorted(content), default=str, separators=(",", ":"))
    return f"settings-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def from_settings(prices: Mapping[str, Price], rates: Rates, since: int = 0) -> PriceBook:
    """The book that a settings file comes to: one version for each price and one of the rates."""
    rows = tuple(
        PriceVersion(settings_version([(model, (p.prompt, p.cached, p.completion))]), model, since, p)
        for model, p in sorted(prices.items())
    )
    return PriceBook(rows, (RatesVersion(settings_version([("rates", sorted(asdict(rates).items()))]), since, rates),))
