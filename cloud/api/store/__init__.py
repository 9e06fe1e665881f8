"""The gateway's database: tables, migrations and transactions, in SQLAlchemy Core."""
