"""Which seed a request samples with: scheduler and workers must name the same one."""

from shared.noise.seeds import derived


def effective_seed(seed: int | None, engine_seed: int, request_id: str) -> int:
    """The request's own seed, else one that every rank derives alike from the engine's seed and the request's id."""
    return seed if seed is not None else derived(engine_seed, request_id)
