"""What the audit log holds: one entry for each change that somebody asked for."""

import getpass
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NewType

from shared.ids import AccountId, NodeId

Actor = NewType("Actor", str)
"""Who asked: the id of an account or of an API key, `node:` and a node's id, `cli:` and a user of this machine, or
`system`.
"""

SYSTEM = Actor("system")
"""The gateway itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """`at` in seconds since 1970; `action` is like `account.disabled`; `subject` is the id of what was changed."""

    at: int
    actor: Actor
    action: str
    subject: str
    detail: Mapping[str, Any] = field(default_factory=dict)
    """JSON. Never a secret, a password or a prompt."""


@dataclass(frozen=True, slots=True)
class Logged:
    """An entry with its place: a larger number was written later."""

    seq: int
    entry: Entry


def actor_account(account: AccountId) -> Actor:
    return Actor(account)


def actor_node(node: NodeId) -> Actor:
    return Actor(f"node:{node}")


def actor_here() -> Actor:
    """Whoever runs a command on this machine."""
    try:
        return Actor(f"cli:{getpass.getuser()}"[:60])
    except (KeyError, OSError):
        return Actor("cli:unknown")
