"""Versioned prices and rates, spot prices, reputations, and what kept nodes from earning."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "price_versions",
        sa.Column("version", sa.String(60), nullable=False),
        sa.Column("model", sa.String(256), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("prompt", sa.BigInteger(), nullable=False),
        sa.Column("cached", sa.BigInteger(), nullable=False),
        sa.Column("completion", sa.BigInteger(), nullable=False),
        sa.Column("added_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("version", "model", name="pk_price_versions"),
    )
    op.create_table(
        "rate_versions",
        sa.Column("version", sa.String(60), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("share", sa.Integer(), nullable=False),
        sa.Column("hold_days", sa.Integer(), nullable=False),
        sa.Column("verifier", sa.BigInteger(), nullable=False),
        sa.Column("tariff", sa.BigInteger(), nullable=False),
        sa.Column("millijoules", sa.BigInteger(), nullable=False),
        sa.Column("margin", sa.Integer(), nullable=False),
        sa.Column("added_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("version", name="pk_rate_versions"),
    )
    op.create_table(
        "spot_prices",
        sa.Column("version", sa.String(60), nullable=False),
        sa.Column("model", sa.String(256), nullable=False),
        sa.Column("minute", sa.BigInteger(), nullable=False),
        sa.Column("price", sa.BigInteger(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.Column("setter", sa.String(32)),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("demand", sa.Integer(), nullable=False),
        sa.Column("rates_version", sa.String(60), nullable=False),
        sa.PrimaryKeyConstraint("version", "model", name="pk_spot_prices"),
    )
    op.create_index("ix_spot_prices_model_minute", "spot_prices", ["model", "minute"])
    op.create_table(
        "reputations",
        sa.Column("node", sa.String(32), nullable=False),
        sa.Column("model", sa.String(256), nullable=False),
        sa.Column("stage", sa.String(12), nullable=False),
        sa.Column("hits", sa.BigInteger(), nullable=False),
        sa.Column("misses", sa.BigInteger(), nullable=False),
        sa.Column("gain", sa.BigInteger(), nullable=False),
        sa.Column("compared", sa.BigInteger(), nullable=False),
        sa.Column("p50_ms", sa.BigInteger()),
        sa.Column("p90_ms", sa.BigInteger()),
        sa.Column("met", sa.BigInteger(), nullable=False),
        sa.Column("missed", sa.BigInteger(), nullable=False),
        sa.Column("kept", sa.BigInteger(), nullable=False),
        sa.Column("broken", sa.BigInteger(), nullable=False),
        sa.Column("drafted", sa.BigInteger(), nullable=False),
        sa.Column("accepted", sa.BigInteger(), nullable=False),
        sa.Column("marginal", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("node", "model", name="pk_reputations"),
    )
    op.create_table(
        "quarantines",
        sa.Column("node", sa.String(32), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.Column("refusals", sa.Integer(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("node", name="pk_quarantines"),
    )
    op.create_table(
        "node_minutes",
        sa.Column("node", sa.String(32), nullable=False),
        sa.Column("minute", sa.BigInteger(), nullable=False),
        sa.Column("gateway", sa.String(40), nullable=False),
        sa.Column("owner", sa.String(40)),
        sa.Column("reason", sa.String(20), nullable=False),
        sa.Column("words", sa.Text(), nullable=False),
        sa.Column("streams", sa.Integer(), nullable=False),
        sa.Column("drafted", sa.BigInteger(), nullable=False),
        sa.Column("accepted", sa.BigInteger(), nullable=False),
        sa.Column("marginal", sa.BigInteger(), nullable=False),
        sa.Column("earned", sa.BigInteger(), nullable=False),
        sa.Column("millijoules", sa.BigInteger()),
        sa.PrimaryKeyConstraint("node", "minute", "gateway", name="pk_node_minutes"),
    )
    op.create_index("ix_node_minutes_owner_minute", "node_minutes", ["owner", "minute"])
    op.create_index("ix_node_minutes_minute", "node_minutes", ["minute"])


def downgrade() -> None:
    for name in (
        "node_minutes",
        "quarantines",
        "reputations",
        "spot_prices",
        "rate_versions",
        "price_versions",
    ):
        op.drop_table(name)
