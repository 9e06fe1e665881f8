"""Seeds: one per choice of a request, never drawn inside an engine (tensor-parallel ranks would diverge)."""

import hashlib
import secrets

SEED_BITS = 63
"""Seeds are non-negative and fit a signed 64-bit integer, as engines and JSON clients expect."""


def fresh() -> int:
    """A new random seed."""
    return secrets.randbits(SEED_BITS)


def derived(engine_seed: int, request_id: str) -> int:
    """The seed of an unseeded request: every rank of an engine computes the same one."""
    digest = hashlib.blake2b(f"{engine_seed}/{request_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
