"""Receipts and payouts. Times are seconds since 1970 (UTC)."""

from cloud.api.store.metadata import METADATA as METADATA
