"""What identity may be told."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class IdentitySettings:
    """Times in seconds, memory in KiB."""

    sign_up: bool = False
    """Whether anybody may make an account for themselves, as developer or owner."""
    session_s: int = 604_800
    sessions: int = 50
    """Active sessions of one account; a new one beyond it ends the oldest."""
    public_url: str | None = None
    """Where people reach this gateway; none = where the node that wants to be paired reaches it."""
    pairing_s: int = 900
    """How long a device code waits for its owner."""
    pairing_interval_s: int = 5
    """How often the node may ask meanwhile."""
    pairings: int = 1000
    """Device codes that wait at once."""
    attempts_per_account: int = 10
    """Wrong passwords, or user codes, in `attempts_window_s`."""
    attempts_per_address: int = 50
    attempts_window_s: float = 900.0
    argon2_memory_kib: int = 65_536
    argon2_passes: int = 3
    argon2_lanes: int = 4
    pairing_needed: bool = False
    """Whether a node that is paired with no account is refused."""
