"""Names for identifiers, so that one kind is never passed for another."""

from typing import NewType

StreamId = NewType("StreamId", str)
"""One choice of one request: the unit that is drafted for and verified. Chosen by the gateway."""

NodeId = NewType("NodeId", str)
"""A draft node: the hexadecimal SHA-256 of its Ed25519 public key, first 32 digits."""

GatewayId = NewType("GatewayId", str)
"""One running gateway process, as the verifier sees it."""

VerifierId = NewType("VerifierId", str)
"""One running engine of a verifier; a restart makes a new one."""

TapeId = NewType("TapeId", str)
"""One line of drafts for one stream; a node's own id, or that and a candidate's number."""

ModelName = NewType("ModelName", str)
"""The name under which a model is served and asked for."""

AccountId = NewType("AccountId", str)
"""A person or organisation with an account: developer, owner of nodes, operator, or several of these."""
