"""Where Nexus keeps things, by the platform's own convention."""

import os
import warnings
from pathlib import Path

import platformdirs

_APP = "nexus"


def cache_dir() -> Path:
    """Folder for what can be fetched or made again (models); `NEXUS_CACHE_DIR` overrides it."""
    override = os.environ.get("NEXUS_CACHE_DIR")
    return Path(override) if override else Path(platformdirs.user_cache_dir(_APP))


def config_dir() -> Path:
    """Folder for settings and the node's key; `NEXUS_CONFIG_DIR` overrides it."""
    override = os.environ.get("NEXUS_CONFIG_DIR")
    return Path(override) if override else Path(platformdirs.user_config_dir(_APP))


def data_dir() -> Path:
    """Folder for what must not be lost (the gateway's database); `NEXUS_DATA_DIR` overrides it."""
    override = os.environ.get("NEXUS_DATA_DIR")
    return Path(override) if override else Path(platformdirs.user_data_dir(_APP))


def runtime_dir() -> Path:
    """Folder for sockets of running processes, made private to the user (0700) if it is missing."""
    override = os.environ.get("NEXUS_RUNTIME_DIR")
    with warnings.catch_warnings():
        # Where the system has no such folder for a user, as in a container, /tmp does: nothing to tell people of.
        warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR is not set")
        path = Path(override or platformdirs.user_runtime_dir(_APP))
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def default_draft_port() -> str:
    """The draft port's ZeroMQ address when nothing else is set: a socket of this user."""
    return f"ipc://{runtime_dir() / 'draft-port'}"
