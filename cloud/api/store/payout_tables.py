"""Receipts, payouts and disputes. Times are whole seconds since 1970 (UTC), money is nano-dollars."""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from cloud.api.store.metadata import METADATA as METADATA

RECEIPT_KEYS: Final = Table(
    "receipt_keys",
    METADATA,
    Column("name", String(40), primary_key=True),
    Column("public", LargeBinary(32), nullable=False),
    Column("since", BigInteger, nullable=False),
    Column("until", BigInteger),
)
"""Public halves of every key that has signed receipts: old receipts are checked by them after a rotation."""

RECEIPTS: Final = Table(
    "receipts",
    METADATA,
    Column("id", String(40), primary_key=True),
    Column("owner", String(40), nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("event_id", String(60), nullable=False),
    Column("request_id", String(60)),
    Column("node", String(64)),
    Column("node_class", String(10)),
    Column("model", String(256)),
    Column("at", BigInteger, nullable=False),
    Column("drafted", BigInteger, nullable=False),
    Column("accepted", BigInteger, nullable=False),
    Column("marginal", BigInteger, nullable=False),
    Column("amount", BigInteger, nullable=False),
    Column("millijoules", BigInteger),
    Column("body", LargeBinary, nullable=False),
    Column("digest", LargeBinary(32), nullable=False),
    Column("signature", LargeBinary(64), nullable=False),
    UniqueConstraint("owner", "sequence"),
    UniqueConstraint("request_id", "node"),
    Index(None, "owner", "at"),
)
"""`body` is what was signed; the columns beside it are for questions. `node_class`: what the node was to the customer
of the request. Adjustments have no request, node and model."""

RECEIPT_HEADS: Final = Table(
    "receipt_heads",
    METADATA,
    Column("owner", String(40), primary_key=True),
    Column("sequence", BigInteger, nullable=False),
    Column("digest", LargeBinary(32), nullable=False),
    Column("total", BigInteger, nullable=False),
)
"""The end of each owner's chain. Whoever adds to a chain holds its row until the commit."""

PAYOUTS: Final = Table(
    "payouts",
    METADATA,
    Column("id", String(40), primary_key=True),
    Column("owner", String(40), nullable=False),
    Column("amount", BigInteger, nullable=False),
    Column("rail", String(20), nullable=False),
    Column("destination", Text, nullable=False),
    Column("state", String(10), nullable=False),
    Column("asked_at", BigInteger, nullable=False),
    Column("reviewed_by", String(60)),
    Column("approved_by", String(60)),
    Column("approved_at", BigInteger),
    Column("sent_at", BigInteger),
    Column("ended_at", BigInteger),
    Column("batch", String(40), index=True),
    Column("reference", String(200)),
    Column("reason", Text),
    Index(None, "owner", "asked_at"),
    Index(None, "state", "rail"),
)

PAYOUT_OUTBOX: Final = Table(
    "payout_outbox",
    METADATA,
    Column("payout", String(40), primary_key=True),
    Column("idempotency_key", String(60), nullable=False),
    Column("due", BigInteger, nullable=False, index=True),
    Column("tries", Integer, nullable=False),
    Column("refusals", Integer, nullable=False),
    Column("in_doubt", Boolean(create_constraint=False), nullable=False),
    Column("trouble", Text, nullable=False),
)
"""What a rail has still to be told: written with the approval, gone when the rail has answered for good."""

PAYOUT_DESTINATIONS: Final = Table(
    "payout_destinations",
    METADATA,
    Column("owner", String(40), nullable=False),
    Column("rail", String(20), nullable=False),
    Column("destination", Text, nullable=False),
    Column("changed_at", BigInteger, nullable=False),
    PrimaryKeyConstraint("owner", "rail"),
)

RAIL_EVENTS: Final = Table(
    "rail_events",
    METADATA,
    Column("id", String(200), primary_key=True),
    Column("at", BigInteger, nullable=False),
)
"""What rails have told us already."""

TARIFFS: Final = Table(
    "tariffs",
    METADATA,
    Column("owner", String(40), primary_key=True),
    Column("nano_per_kwh", BigInteger, nullable=False),
)
"""What an owner pays for electricity."""

DISPUTES: Final = Table(
    "disputes",
    METADATA,
    Column("id", String(40), primary_key=True),
    Column("account", String(40), nullable=False, index=True),
    Column("side", String(10), nullable=False),
    Column("request_id", String(60)),
    Column("claim", Text, nullable=False),
    Column("state", String(10), nullable=False),
    Column("opened_by", String(60), nullable=False),
    Column("opened_at", BigInteger, nullable=False),
    Column("resolved_by", String(60)),
    Column("resolved_at", BigInteger),
    Column("reason", Text),
    Column("amount", BigInteger),
    Column("event_id", String(60)),
    Index(None, "state", "opened_at"),
)
"""`amount` and `event_id`: the adjustment that settled it, if one did."""
