"""The tables. Times are whole seconds since 1970 (UTC), money is nano-dollars, lengths are bytes."""

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
)

from cloud.api.store.metadata import METADATA as METADATA

COUNTERS: Final = Table(
    "counters",
    METADATA,
    Column("name", String(40), primary_key=True),
    Column("value", BigInteger, nullable=False),
)

API_KEYS: Final = Table(
    "api_keys",
    METADATA,
    Column("id", String(40), primary_key=True),
    Column("digest", LargeBinary(32), nullable=False, unique=True),
    Column("start", String(16), nullable=False),
    Column("name", String(100), nullable=False),
    Column("scopes", String(100), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("requests_per_minute", BigInteger),
    Column("tokens_per_minute", BigInteger),
    Column("concurrent_streams", Integer),
    Column("monthly_budget", BigInteger),
    Column("privacy", String(20)),
    Column("revoked_at", BigInteger),
    Column("revision", BigInteger, nullable=False, index=True),
    Column("account", String(40), index=True),
)
"""`revision` is the value of the counter `api_keys` at the row's last change. Without an `account` a key belongs to the
deployment itself.
"""

USAGE: Final = Table(
    "usage",
    METADATA,
    Column("request_id", String(60), primary_key=True),
    Column("key_id", String(40), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("model", String(256), nullable=False),
    Column("path", String(60), nullable=False),
    Column("streamed", Boolean(create_constraint=False), nullable=False),
    Column("outcome", String(20), nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
    Column("cost", BigInteger, nullable=False),
    Index(None, "key_id", "at"),
)

SPENDING: Final = Table(
    "spending",
    METADATA,
    Column("key_id", String(40), nullable=False),
    Column("month", String(7), nullable=False),
    Column("requests", BigInteger, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
    Column("cost", BigInteger, nullable=False),
    PrimaryKeyConstraint("key_id", "month"),
)
"""Sums of `usage`, changed in the same transaction."""

ANSWERS: Final = Table(
    "answers",
    METADATA,
    Column("id", String(40), primary_key=True),
    Column("fingerprint", LargeBinary(32), nullable=False, index=True),
    Column("claim", LargeBinary(32), unique=True),
    Column("state", String(10), nullable=False),
    Column("owner", String(40), nullable=False),
    Column("lease_until", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("expires_at", BigInteger, nullable=False, index=True),
    Column("retries", Integer, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("billed", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("headers", Text, nullable=False),
    Column("content", LargeBinary),
    Index(None, "ended_at", "size"),
)
"""Answers that may be asked for again. `claim` is set for those of an `Idempotency-Key`, one row for each."""
