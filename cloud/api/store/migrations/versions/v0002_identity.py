"""People, sessions, pairing, node keys, and the audit log."""

import sqlalchemy as sa
from alembic import op

from cloud.api.store.append_only import protect, unprotect

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "people",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("email", sa.String(254), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("roles", sa.String(100), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("password", sa.String(255)),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_people"),
        sa.UniqueConstraint("email", name="uq_people_email"),
    )
    op.create_index("ix_people_created_at_id", "people", ["created_at", "id"])
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("account", sa.String(40), nullable=False),
        sa.Column("client", sa.String(200), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_sessions"),
        sa.UniqueConstraint("digest", name="uq_sessions_digest"),
        sa.ForeignKeyConstraint(["account"], ["people.id"], name="fk_sessions_account"),
    )
    op.create_index("ix_sessions_account", "sessions", ["account"])
    op.create_index("ix_sessions_expires_at", "sessions", ["expires_at"])
    op.create_table(
        "grants",
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("user_code", sa.String(16), nullable=False),
        sa.Column("public_key", sa.LargeBinary(32), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("page", sa.String(300), nullable=False),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("account", sa.String(40)),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("interval_s", sa.BigInteger(), nullable=False),
        sa.Column("polled_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("digest", name="pk_grants"),
        sa.UniqueConstraint("user_code", name="uq_grants_user_code"),
        sa.ForeignKeyConstraint(["account"], ["people.id"], name="fk_grants_account"),
    )
    op.create_index("ix_grants_account", "grants", ["account"])
    op.create_index("ix_grants_expires_at", "grants", ["expires_at"])
    op.create_table(
        "nodes",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("public_key", sa.LargeBinary(32), nullable=False),
        sa.Column("owner", sa.String(40), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("paired_at", sa.BigInteger(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger()),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_nodes"),
        sa.UniqueConstraint("public_key", name="uq_nodes_public_key"),
        sa.ForeignKeyConstraint(["owner"], ["people.id"], name="fk_nodes_owner"),
    )
    op.create_index("ix_nodes_owner", "nodes", ["owner"])
    op.create_index("ix_nodes_revision", "nodes", ["revision"])
    op.create_table(
        "audit",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.String(80), nullable=False),
        sa.Column("action", sa.String(60), nullable=False),
        sa.Column("subject", sa.String(80), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_audit"),
    )
    op.create_index("ix_audit_subject_seq", "audit", ["subject", "seq"])
    protect("audit")
    op.add_column("api_keys", sa.Column("account", sa.String(40)))
    op.create_index("ix_api_keys_account", "api_keys", ["account"])
    for name in ("api_keys", "nodes"):
        op.execute(
            f"INSERT INTO counters (name, value) SELECT '{name}', 0 "
            f"WHERE NOT EXISTS (SELECT 1 FROM counters WHERE name = '{name}')"
        )


def downgrade() -> None:
    op.execute("DELETE FROM counters WHERE name = 'nodes'")
    op.drop_index("ix_api_keys_account", "api_keys")
    op.drop_column("api_keys", "account")
    unprotect("audit")
    for name in ("audit", "nodes", "grants", "sessions", "people"):
        op.drop_table(name)
