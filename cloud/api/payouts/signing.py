"""Where the coordinator keeps the key that signs receipts: beside its database, readable by its user only."""

from pathlib import Path

from cloud.api.store.database import MEMORY
from shared import paths
from shared.errors import ConfigError
from shared.receipts import ReceiptKey

KEY_FILE = "receipts.pem"


def key_path(database: str, named: Path | None) -> Path | None:
    """The file that the settings name; else one beside the SQLite file, or in the data folder for other databases. None
    for a gateway that keeps nothing on disk.
    """
    if named is not None:
        return named
    if database == MEMORY:
        return None
    if "://" in database and not database.startswith("sqlite"):
        return paths.data_dir() / KEY_FILE
    file = Path(database.partition(":///")[2] if "://" in database else database).expanduser()
    return file.with_name(f"{file.stem}.{KEY_FILE}")


def load_key(path: Path | None) -> ReceiptKey:
    """Made when there is none yet. Raises `ConfigError`."""
    if path is None:
        return ReceiptKey.generate()
    try:
        return ReceiptKey.load_or_generate(path)
    except OSError as error:
        raise ConfigError(f"The receipt key {path} cannot be written: {error.strerror}.") from None


def rotate(path: Path) -> tuple[ReceiptKey, Path | None]:
    """A new key in place of the one at `path`; the old file is kept under its key's name. Raises `ConfigError`."""
    kept: Path | None = None
    if path.exists():
        old = ReceiptKey.load(path)
        kept = path.with_name(f"{path.stem}.{old.name}{path.suffix}")
        old.save(kept)
    new = ReceiptKey.generate()
    new.save(path)
    return new, kept
