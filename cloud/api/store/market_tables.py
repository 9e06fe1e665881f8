"""Price versions, spot prices, reputations and minutes of nodes. Times are seconds since 1970, money is integers."""

from typing import Final

from sqlalchemy import BigInteger, Column, Index, Integer, PrimaryKeyConstraint, String, Table, Text

from cloud.api.store.metadata import METADATA as METADATA

PRICE_VERSIONS: Final = Table(
    "price_versions",
    METADATA,
    Column("version", String(60), nullable=False),
    Column("model", String(256), nullable=False),
    Column("since", BigInteger, nullable=False),
    Column("prompt", BigInteger, nullable=False),
    Column("cached", BigInteger, nullable=False),
    Column("completion", BigInteger, nullable=False),
    Column("added_at", BigInteger, nullable=False),
    PrimaryKeyConstraint("version", "model"),
)
"""Pico-dollars for a token. Rows are never changed."""

RATE_VERSIONS: Final = Table(
    "rate_versions",
    METADATA,
    Column("version", String(60), primary_key=True),
    Column("since", BigInteger, nullable=False),
    Column("share", Integer, nullable=False),
    Column("hold_days", Integer, nullable=False),
    Column("verifier", BigInteger, nullable=False),
    Column("tariff", BigInteger, nullable=False),
    Column("millijoules", BigInteger, nullable=False),
    Column("margin", Integer, nullable=False),
    Column("added_at", BigInteger, nullable=False),
)
"""The fields of `cloud.api.market.pricebook.Rates`. Rows are never changed."""

SPOT_PRICES: Final = Table(
    "spot_prices",
    METADATA,
    Column("version", String(60), nullable=False),
    Column("model", String(256), nullable=False),
    Column("minute", BigInteger, nullable=False),
    Column("price", BigInteger, nullable=False),
    Column("value", BigInteger, nullable=False),
    Column("setter", String(32)),
    Column("nodes", Integer, nullable=False),
    Column("demand", Integer, nullable=False),
    Column("rates_version", String(60), nullable=False),
    PrimaryKeyConstraint("version", "model"),
    Index(None, "model", "minute"),
)
"""Pico-dollars for a marginal token."""

REPUTATIONS: Final = Table(
    "reputations",
    METADATA,
    Column("node", String(32), nullable=False),
    Column("model", String(256), nullable=False),
    Column("stage", String(12), nullable=False),
    Column("hits", BigInteger, nullable=False),
    Column("misses", BigInteger, nullable=False),
    Column("gain", BigInteger, nullable=False),
    Column("compared", BigInteger, nullable=False),
    Column("p50_ms", BigInteger),
    Column("p90_ms", BigInteger),
    Column("met", BigInteger, nullable=False),
    Column("missed", BigInteger, nullable=False),
    Column("kept", BigInteger, nullable=False),
    Column("broken", BigInteger, nullable=False),
    Column("drafted", BigInteger, nullable=False),
    Column("accepted", BigInteger, nullable=False),
    Column("marginal", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    PrimaryKeyConstraint("node", "model"),
)
"""Faded evidence (`hits`, `misses`, `gain`) in thousandths of a token."""

QUARANTINES: Final = Table(
    "quarantines",
    METADATA,
    Column("node", String(32), primary_key=True),
    Column("until", BigInteger, nullable=False),
    Column("refusals", Integer, nullable=False),
    Column("why", Text, nullable=False),
)

NODE_MINUTES: Final = Table(
    "node_minutes",
    METADATA,
    Column("node", String(32), nullable=False),
    Column("minute", BigInteger, nullable=False),
    Column("gateway", String(40), nullable=False),
    Column("owner", String(40)),
    Column("reason", String(20), nullable=False),
    Column("words", Text, nullable=False),
    Column("streams", Integer, nullable=False),
    Column("drafted", BigInteger, nullable=False),
    Column("accepted", BigInteger, nullable=False),
    Column("marginal", BigInteger, nullable=False),
    Column("earned", BigInteger, nullable=False),
    Column("millijoules", BigInteger),
    PrimaryKeyConstraint("node", "minute", "gateway"),
    Index(None, "owner", "minute"),
    Index(None, "minute"),
)
"""`earned` in nano-dollars."""
