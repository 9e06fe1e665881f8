"""Double-entry events and postings, balances, reservations and settlements."""

import sqlalchemy as sa
from alembic import op

from cloud.api.store.append_only import protect, unprotect

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "ledger_events",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("key", sa.String(100), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.String(500), nullable=False),
        sa.Column("actor", sa.String(100), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_ledger_events"),
        sa.UniqueConstraint("key", name="uq_ledger_events_key"),
    )
    op.create_table(
        "ledger_postings",
        sa.Column("event_id", sa.String(40), nullable=False),
        sa.Column("place", sa.String(80), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("event_id", "place", name="pk_ledger_postings"),
        sa.ForeignKeyConstraint(["event_id"], ["ledger_events.id"], name="fk_ledger_postings_event_id"),
    )
    op.create_index("ix_ledger_postings_place_event_id", "ledger_postings", ["place", "event_id"])
    op.create_table(
        "ledger_balances",
        sa.Column("place", sa.String(80), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("place", name="pk_ledger_balances"),
    )
    op.create_table(
        "reservations",
        sa.Column("request_id", sa.String(60), nullable=False),
        sa.Column("account", sa.String(40), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("gateway", sa.String(60), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.PrimaryKeyConstraint("request_id", name="pk_reservations"),
    )
    op.create_index("ix_reservations_state_expires_at", "reservations", ["state", "expires_at"])
    op.create_table(
        "settlements",
        sa.Column("request_id", sa.String(60), nullable=False),
        sa.Column("event_id", sa.String(40), nullable=False),
        sa.Column("account", sa.String(40)),
        sa.Column("target", sa.String(256), nullable=False),
        sa.Column("price_version", sa.String(60), nullable=False),
        sa.Column("cost", sa.BigInteger(), nullable=False),
        sa.Column("paid_out", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("request_id", name="pk_settlements"),
        sa.UniqueConstraint("event_id", name="uq_settlements_event_id"),
        sa.ForeignKeyConstraint(["event_id"], ["ledger_events.id"], name="fk_settlements_event_id"),
    )
    op.create_index("ix_settlements_account_at", "settlements", ["account", "at"])
    op.create_table(
        "maturing",
        sa.Column("owner", sa.String(40), nullable=False),
        sa.Column("day", sa.BigInteger(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "day", name="pk_maturing"),
    )
    op.create_index("ix_maturing_day", "maturing", ["day"])
    for name in ("ledger_events", "ledger_postings"):
        protect(name)


def downgrade() -> None:
    for name in ("ledger_events", "ledger_postings"):
        unprotect(name)
    for name in ("maturing", "settlements", "reservations", "ledger_balances", "ledger_postings", "ledger_events"):
        op.drop_table(name)
