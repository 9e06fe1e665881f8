"""People, sessions, device codes, nodes and the audit log. Times are seconds since 1970 (UTC)."""

from cloud.api.store.metadata import METADATA as METADATA
