"""Who this node is: its key, its id, and where the secret half is kept."""

from dataclasses import dataclass, field
from pathlib import Path

from shared.errors import ConfigError
from shared.ids import NodeId
from shared.keys import NodeKey, node_id


@dataclass(frozen=True)
class Identity:
    """A node's key and what may be shown of it."""

    key: NodeKey = field(repr=False)
    node_id: NodeId
    store: str
    """Where the secret key is, in words, for the owner."""

    @property
    def public_key_hex(self) -> str:
        return self.key.public.hex()


def load_identity(key_file: Path) -> Identity:
    """The identity in `key_file`, made on first use. Raises ConfigError when it cannot be read or written."""
    try:
        key = NodeKey.load_or_generate(key_file)
    except OSError as error:
        raise ConfigError(
            f"The node key {key_file} cannot be kept there: {error.strerror}. Choose another place with --key-file.",
            param="key_file",
        ) from None
    return Identity(key, node_id(key.public), f"the file {key_file}, readable by you only")
