"""Price versions, spot prices, reputations and minutes of nodes. Times are whole seconds since 1970 (UTC), money is integers."""

from cloud.api.store.metadata import METADATA as METADATA
