"""All tables together: whoever migrates or checks the database imports this."""

from cloud.api.store import identity_tables, ledger_tables, market_tables, payout_tables, tables
from cloud.api.store.metadata import METADATA

__all__ = ["METADATA", "identity_tables", "ledger_tables", "market_tables", "payout_tables", "tables"]
