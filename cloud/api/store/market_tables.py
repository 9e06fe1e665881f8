"""Price versions, spot prices, reputations and minutes of nodes. Times are seconds since 1970 (UTC)."""

from cloud.api.store.metadata import METADATA as METADATA
