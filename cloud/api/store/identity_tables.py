"""People, sessions, device codes, nodes and the audit log. Times are whole seconds since 1970 (UTC), money is integers."""

from cloud.api.store.metadata import METADATA as METADATA
