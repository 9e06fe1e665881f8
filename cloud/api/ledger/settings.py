"""Holds and deadlines of money, and where settlements wait for the books."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import make_url

from cloud.api.store.database import file_of
from shared import paths


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerSettings:
    """What an operator can change."""

    hold_days: int = 7
    """Whole days (UTC) for which earnings are pending before they are payable."""
    lease_s: int = 60
    """How long a reservation lasts that its gateway does not renew."""


def spool_folder(database: str, configured: Path | None = None) -> Path:
    """Beside an SQLite file; for a server's database in this machine's data folder, a folder for each database."""
    if configured is not None:
        return configured
    file = file_of(database)
    if file is not None:
        return file.with_name(f"{file.name}.spool")
    url = make_url(database).set(password=None).render_as_string()
    return paths.data_dir() / f"spool-{hashlib.sha256(url.encode()).hexdigest()[:16]}"
