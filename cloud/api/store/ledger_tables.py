"""Events, postings, balances, reservations, settlements. Times are seconds since 1970 (UTC), money is nano-dollars."""

from typing import Final

from sqlalchemy import BigInteger, Column, ForeignKey, Index, PrimaryKeyConstraint, String, Table

from cloud.api.store.metadata import METADATA as METADATA

EVENTS: Final = Table(
    "ledger_events",
    METADATA,
    Column("id", String(40), primary_key=True),
    Column("key", String(100), nullable=False, unique=True),
    Column("kind", String(20), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("reason", String(500), nullable=False),
    Column("actor", String(100), nullable=False),
)
"""Append-only, like their postings: triggers refuse everything but INSERT."""

POSTINGS: Final = Table(
    "ledger_postings",
    METADATA,
    Column("event_id", String(40), ForeignKey(EVENTS.c.id), nullable=False),
    Column("place", String(80), nullable=False),
    Column("amount", BigInteger, nullable=False),
    PrimaryKeyConstraint("event_id", "place"),
    Index(None, "place", "event_id"),
)

BALANCES: Final = Table(
    "ledger_balances",
    METADATA,
    Column("place", String(80), primary_key=True),
    Column("amount", BigInteger, nullable=False),
)
"""Sums of the postings, changed in the same transaction."""

RESERVATIONS: Final = Table(
    "reservations",
    METADATA,
    Column("request_id", String(60), primary_key=True),
    Column("account", String(40), nullable=False),
    Column("amount", BigInteger, nullable=False),
    Column("gateway", String(60), nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("state", String(10), nullable=False),
    Index(None, "state", "expires_at"),
)

SETTLEMENTS: Final = Table(
    "settlements",
    METADATA,
    Column("request_id", String(60), primary_key=True),
    Column("event_id", String(40), ForeignKey(EVENTS.c.id), nullable=False, unique=True),
    Column("account", String(40)),
    Column("target", String(256), nullable=False),
    Column("price_version", String(60), nullable=False),
    Column("cost", BigInteger, nullable=False),
    Column("paid_out", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Index(None, "account", "at"),
)
"""Settlements that moved money. Those of free answers are in `usage` alone."""

MATURING: Final = Table(
    "maturing",
    METADATA,
    Column("owner", String(40), nullable=False),
    Column("day", BigInteger, nullable=False),
    Column("amount", BigInteger, nullable=False),
    PrimaryKeyConstraint("owner", "day"),
    Index(None, "day"),
)
"""Pending earnings by the day, counted from 1970, on which they become payable; a row goes when they do."""
