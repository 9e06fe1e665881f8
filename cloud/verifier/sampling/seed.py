"""Which seed a request samples with: scheduler and workers must name the same one."""

from shared.noise.seeds import derived


def effective_seed(seed: int | None, engine_seed: int, request_id: str) -> int:
    """The request's own seed, else one that every rank derives alike from the engine's seed and the request's id.

    It fits a signed 64-bit integer: choice i of a request has seed + i, and at the upper end that wraps around.
    """
    if seed is None:
        return derived(engine_seed, request_id)
    return (seed + (1 << 63)) % (1 << 64) - (1 << 63)
