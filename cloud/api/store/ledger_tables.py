"""Events, postings, balances, reservations and settlements. Times are whole seconds since 1970 (UTC), money is integers."""

from cloud.api.store.metadata import METADATA as METADATA
