"""People, sessions, device codes, nodes and the audit log. Times are whole seconds since 1970 (UTC)."""

from typing import Final

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, LargeBinary, String, Table, Text

from cloud.api.store.metadata import METADATA as METADATA

SEQUENCE: Final = BigInteger().with_variant(Integer(), "sqlite")
"""A number that the database gives to each new row; SQLite does so for a column of its own kind only."""

PEOPLE: Final = Table(
    "people",
    METADATA,
    Column("id", String(40), primary_key=True),
    Column("email", String(254), nullable=False, unique=True),
    Column("name", String(100), nullable=False),
    Column("roles", String(100), nullable=False),
    Column("state", String(20), nullable=False),
    Column("password", String(255)),
    Column("created_at", BigInteger, nullable=False),
    Index(None, "created_at", "id"),
)
"""Accounts. `password` is an argon2id hash in its usual text form; none lets nobody sign in."""

SESSIONS: Final = Table(
    "sessions",
    METADATA,
    Column("id", String(40), primary_key=True),
    Column("digest", LargeBinary(32), nullable=False, unique=True),
    Column("account", String(40), ForeignKey(PEOPLE.c.id), nullable=False, index=True),
    Column("client", String(200), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False, index=True),
    Column("ended_at", BigInteger),
)
"""`digest` is the SHA-256 of the token."""

GRANTS: Final = Table(
    "grants",
    METADATA,
    Column("digest", LargeBinary(32), primary_key=True),
    Column("user_code", String(16), nullable=False, unique=True),
    Column("public_key", LargeBinary(32), nullable=False),
    Column("name", String(100), nullable=False),
    Column("page", String(300), nullable=False),
    Column("address", String(64), nullable=False),
    Column("state", String(20), nullable=False),
    Column("account", String(40), ForeignKey(PEOPLE.c.id), index=True),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False, index=True),
    Column("interval_s", BigInteger, nullable=False),
    Column("polled_at", BigInteger),
)
"""Device codes (RFC 8628) of nodes that are being paired; `digest` is the SHA-256 of the device code."""

NODES: Final = Table(
    "nodes",
    METADATA,
    Column("id", String(40), primary_key=True),
    Column("public_key", LargeBinary(32), nullable=False, unique=True),
    Column("owner", String(40), ForeignKey(PEOPLE.c.id), nullable=False, index=True),
    Column("name", String(100), nullable=False),
    Column("state", String(20), nullable=False),
    Column("paired_at", BigInteger, nullable=False),
    Column("revoked_at", BigInteger),
    Column("revision", BigInteger, nullable=False, index=True),
)
"""`revision` is the value of the counter `nodes` at the row's last change."""

AUDIT: Final = Table(
    "audit",
    METADATA,
    Column("seq", SEQUENCE, primary_key=True, autoincrement=True),
    Column("at", BigInteger, nullable=False),
    Column("actor", String(80), nullable=False),
    Column("action", String(60), nullable=False),
    Column("subject", String(80), nullable=False),
    Column("detail", Text, nullable=False),
    Index(None, "subject", "seq"),
)
"""Append-only: triggers refuse everything but INSERT."""
