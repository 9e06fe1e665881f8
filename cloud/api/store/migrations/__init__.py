"""Alembic's environment: brings a database to the present tables, when a gateway or `nexus keys` opens it."""
