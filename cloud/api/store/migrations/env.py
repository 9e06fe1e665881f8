"""Run by alembic: applies the migrations on the connection that `cloud.api.store.database` opened."""

from alembic import context

from cloud.api.store.schema import METADATA

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=METADATA, render_as_batch=True)
context.run_migrations()
