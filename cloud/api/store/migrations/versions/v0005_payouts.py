"""Receipts, payouts and disputes."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "receipt_keys",
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("public", sa.LargeBinary(32), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger()),
        sa.PrimaryKeyConstraint("name", name="pk_receipt_keys"),
    )
    op.create_table(
        "receipts",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("owner", sa.String(40), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("event_id", sa.String(60), nullable=False),
        sa.Column("request_id", sa.String(60)),
        sa.Column("node", sa.String(64)),
        sa.Column("node_class", sa.String(10)),
        sa.Column("model", sa.String(256)),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("drafted", sa.BigInteger(), nullable=False),
        sa.Column("accepted", sa.BigInteger(), nullable=False),
        sa.Column("marginal", sa.BigInteger(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("millijoules", sa.BigInteger()),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("signature", sa.LargeBinary(64), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_receipts"),
        sa.UniqueConstraint("owner", "sequence", name="uq_receipts_owner_sequence"),
        sa.UniqueConstraint("request_id", "node", name="uq_receipts_request_id_node"),
    )
    op.create_index("ix_receipts_owner_at", "receipts", ["owner", "at"])
    op.create_table(
        "receipt_heads",
        sa.Column("owner", sa.String(40), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("total", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("owner", name="pk_receipt_heads"),
    )
    op.create_table(
        "payouts",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("owner", sa.String(40), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("rail", sa.String(20), nullable=False),
        sa.Column("destination", sa.Text(), nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("asked_at", sa.BigInteger(), nullable=False),
        sa.Column("reviewed_by", sa.String(60)),
        sa.Column("approved_by", sa.String(60)),
        sa.Column("approved_at", sa.BigInteger()),
        sa.Column("sent_at", sa.BigInteger()),
        sa.Column("ended_at", sa.BigInteger()),
        sa.Column("batch", sa.String(40)),
        sa.Column("reference", sa.String(200)),
        sa.Column("reason", sa.Text()),
        sa.PrimaryKeyConstraint("id", name="pk_payouts"),
    )
    op.create_index("ix_payouts_batch", "payouts", ["batch"])
    op.create_index("ix_payouts_owner_asked_at", "payouts", ["owner", "asked_at"])
    op.create_index("ix_payouts_state_rail", "payouts", ["state", "rail"])
    op.create_table(
        "payout_outbox",
        sa.Column("payout", sa.String(40), nullable=False),
        sa.Column("idempotency_key", sa.String(60), nullable=False),
        sa.Column("due", sa.BigInteger(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("refusals", sa.Integer(), nullable=False),
        sa.Column("in_doubt", sa.Boolean(create_constraint=False), nullable=False),
        sa.Column("trouble", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("payout", name="pk_payout_outbox"),
    )
    op.create_index("ix_payout_outbox_due", "payout_outbox", ["due"])
    op.create_table(
        "payout_destinations",
        sa.Column("owner", sa.String(40), nullable=False),
        sa.Column("rail", sa.String(20), nullable=False),
        sa.Column("destination", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "rail", name="pk_payout_destinations"),
    )
    op.create_table(
        "rail_events",
        sa.Column("id", sa.String(200), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_rail_events"),
    )
    op.create_table(
        "tariffs",
        sa.Column("owner", sa.String(40), nullable=False),
        sa.Column("nano_per_kwh", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("owner", name="pk_tariffs"),
    )
    op.create_table(
        "disputes",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("account", sa.String(40), nullable=False),
        sa.Column("side", sa.String(10), nullable=False),
        sa.Column("request_id", sa.String(60)),
        sa.Column("claim", sa.Text(), nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("opened_by", sa.String(60), nullable=False),
        sa.Column("opened_at", sa.BigInteger(), nullable=False),
        sa.Column("resolved_by", sa.String(60)),
        sa.Column("resolved_at", sa.BigInteger()),
        sa.Column("reason", sa.Text()),
        sa.Column("amount", sa.BigInteger()),
        sa.Column("event_id", sa.String(60)),
        sa.PrimaryKeyConstraint("id", name="pk_disputes"),
    )
    op.create_index("ix_disputes_account", "disputes", ["account"])
    op.create_index("ix_disputes_state_opened_at", "disputes", ["state", "opened_at"])


def downgrade() -> None:
    for name in (
        "disputes",
        "tariffs",
        "rail_events",
        "payout_destinations",
        "payout_outbox",
        "payouts",
        "receipt_heads",
        "receipts",
        "receipt_keys",
    ):
        op.drop_table(name)
