"""Where the verifiers' draft ports are, and the keys for those that are reached over a network."""

from dataclasses import dataclass
from pathlib import Path

from shared.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class DraftPortSettings:
    """`endpoints`: one `ipc://` or `tcp://` address per verifier and data-parallel rank (rank r of a verifier
    at `ipc:///run/x` listens at `ipc:///run/x-r`). Key files have ZeroMQ's certificate format."""

    endpoints: tuple[str, ...]
    curve_server: Path | None = None
    """File with the verifiers' public key."""
    curve_secret: Path | None = None
    """File with this gateway's own key pair; its public half must be on file at the verifiers."""
    allow_insecure_tcp: bool = False
    """Permit tcp without keys: whoever reaches such a port can read prompts and send drafts."""

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise ConfigError("No draft port is set: name at least one ipc:// or tcp:// address.")
        if len(set(self.endpoints)) != len(self.endpoints):
            raise ConfigError("A draft port is named twice: list each address once.")
        if (self.curve_server is None) != (self.curve_secret is None):
            raise ConfigError("Draft port keys: set both the verifiers' public key and this gateway's own key.")
        for endpoint in self.endpoints:
            scheme, separator, rest = endpoint.partition("://")
            if scheme not in ("ipc", "tcp") or not separator or not rest:
                raise ConfigError(f"Draft port {endpoint!r}: begin it with ipc:// (a local socket) or tcp://host:port.")
            if scheme == "tcp" and self.curve_secret is None and not self.allow_insecure_tcp:
                raise ConfigError(
                    f"Draft port {endpoint!r} is a tcp address without keys: prompts would cross the "
                    "network in the clear. Set the key files, use an ipc:// address, or allow insecure tcp."
                )
