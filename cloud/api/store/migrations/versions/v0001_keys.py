"""API keys, usage, spending and answers that may be asked for again."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "counters",
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_counters"),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("start", sa.String(16), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("scopes", sa.String(100), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger()),
        sa.Column("requests_per_minute", sa.BigInteger()),
        sa.Column("tokens_per_minute", sa.BigInteger()),
        sa.Column("concurrent_streams", sa.Integer()),
        sa.Column("monthly_budget", sa.BigInteger()),
        sa.Column("privacy", sa.String(20)),
        sa.Column("revoked_at", sa.BigInteger()),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.UniqueConstraint("digest", name="uq_api_keys_digest"),
    )
    op.create_index("ix_api_keys_revision", "api_keys", ["revision"])
    op.create_table(
        "usage",
        sa.Column("request_id", sa.String(60), nullable=False),
        sa.Column("key_id", sa.String(40), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("model", sa.String(256), nullable=False),
        sa.Column("path", sa.String(60), nullable=False),
        sa.Column("streamed", sa.Boolean(create_constraint=False), nullable=False),
        sa.Column("outcome", sa.String(20), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cached_tokens", sa.BigInteger(), nullable=False),
        sa.Column("completion_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cost", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("request_id", name="pk_usage"),
    )
    op.create_index("ix_usage_key_id_at", "usage", ["key_id", "at"])
    op.create_table(
        "spending",
        sa.Column("key_id", sa.String(40), nullable=False),
        sa.Column("month", sa.String(7), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("completion_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cost", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key_id", "month", name="pk_spending"),
    )
    op.create_table(
        "answers",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("fingerprint", sa.LargeBinary(32), nullable=False),
        sa.Column("claim", sa.LargeBinary(32)),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("owner", sa.String(40), nullable=False),
        sa.Column("lease_until", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger()),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("retries", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("billed", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("headers", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("id", name="pk_answers"),
        sa.UniqueConstraint("claim", name="uq_answers_claim"),
    )
    op.create_index("ix_answers_fingerprint", "answers", ["fingerprint"])
    op.create_index("ix_answers_ended_at_size", "answers", ["ended_at", "size"])
    op.create_index("ix_answers_expires_at", "answers", ["expires_at"])


def downgrade() -> None:
    for name in ("answers", "spending", "usage", "api_keys", "counters"):
        op.drop_table(name)
