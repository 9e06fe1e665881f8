"""How a stream's tokens are chosen: what the verifier tells the nodes so that they can draft alike."""

import msgspec


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Filters that shape the target's choice. Temperature 0 is greedy and makes the rest irrelevant.

    Penalties, bias and grammars are not told to nodes: they change what the target picks, and a
    draft that does not know of them is merely accepted less often.
    """

    temperature: float = 0.0
    top_k: int = 0
    """Keep the k likeliest tokens; 0 keeps all."""
    top_p: float = 1.0
    min_p: float = 0.0

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0
