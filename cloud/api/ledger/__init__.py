"""The double-entry ledger: reservations, settlements, holds and payouts as balanced events that never change."""
