"""What the plugin is told: carried to the engine process in vLLM's `additional_config` under one key."""

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from shared.errors import ConfigError
from shared.paths import runtime_dir

CONFIG_KEY = "nexus"
"""Key in vLLM's `additional_config`."""


class PluginSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the scheduler and the draft port."""

    draft_port: str
    """ZeroMQ address without the rank; rank r binds `<draft_port>-r` (ipc) or port + r (tcp)."""
    model: str
    """Name under which the model is served."""
    fingerprint: str
    """The target's tokenizer fingerprint."""
    vocabulary: int
    """Number of real token ids."""
    wait_price: float = 0.5
    """What a step's waiting for drafts costs, as a multiple of the tokens that the time could bring; 0 waits for every
    draft that is expected."""
    least_gain: float = 1.05
    """A step drafts only if that promises so many times the tokens per second of one without drafts."""
    step_cost: str = ""
    """File with the seconds of a step by its tokens, written at start-up; empty for none. Rank r > 0 adds -r."""
    step_cost_given: bool = False
    """The file is the operator's: what is in it is used, and measured only if it does not exist."""
    tools: bool = False
    """The server finds tool calls in answers, and the model is told of tools."""
    effort: bool = False
    """The model is told how much to reason."""
    sampler: str = ""
    """Engine and sampler with their versions."""
    poll_ms: float = 20.0
    """While a step waits, how often new requests and cancellations are looked at."""
    curve_secret: str | None = None
    """File with the verifier's CURVE key pair; required for tcp."""
    curve_clients: str | None = None
    """Folder with the public keys of gateways that may connect; required for tcp."""


def from_additional_config(additional_config: Any) -> PluginSettings:
    """Reads the settings back in the engine process.

    Raises:
        ConfigError: they are missing or wrong, so vLLM was started by hand without them.
    """
    raw = additional_config.get(CONFIG_KEY) if isinstance(additional_config, dict) else None
    if raw is None:
        raise ConfigError(
            f"additional_config has no {CONFIG_KEY!r}: start the engine with `nexus verifier serve`, which sets it."
        )
    try:
        return msgspec.convert(raw, PluginSettings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"additional_config[{CONFIG_KEY!r}] is wrong: {error}") from error


def profile_file(draft_port: str) -> Path:
    """Where a verifier keeps its own measurement: one file for each draft port, which no two can share."""
    return runtime_dir() / f"step-cost-{hashlib.sha256(draft_port.encode()).hexdigest()[:12]}.json"


def rank_address(draft_port: str, rank: int) -> str:
    """Address that a data-parallel rank binds.

    >>> rank_address("ipc:///run/nexus/draft-port", 1)
    'ipc:///run/nexus/draft-port-1'
    >>> rank_address("tcp://10.0.0.5:7700", 1)
    'tcp://10.0.0.5:7701'
    """
    if draft_port.startswith("tcp://"):
        host, _, port = draft_port.rpartition(":")
        if not port.isdecimal():
            raise ConfigError(f"draft port {draft_port!r}: a tcp address needs a port, as in tcp://host:7700.")
        return f"{host}:{int(port) + rank}"
    if draft_port.startswith("ipc://"):
        return f"{draft_port}-{rank}"
    raise ConfigError(f"draft port {draft_port!r}: begin it with ipc:// (a local socket) or tcp://host:port.")
