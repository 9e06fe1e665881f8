"""What the market may be told; everything has a default."""

from dataclasses import dataclass

from cloud.api.market.pricebook import WHOLE


@dataclass(frozen=True, kw_only=True, slots=True)
class MarketSettings:
    """Basis points unless said otherwise."""

    owner_cap: int = 5_000
    """Of all drafted streams, what one owner's nodes hold while a good node of another owner is free."""
    good_share: float = 0.7
    """Nodes with at least this share of the best surplus are equally good: chance decides."""
    canary_share: int = 500
    """Of all streams, those that a node on probation is tried with although a proven one is free."""
    prove_tokens: int = 200
    """Drafted tokens that are compared with the target's before a node can be proven."""
    least_yield: int = 3_500
    """Marginal tokens among those compared that a node must give beyond doubt; it falls back below three quarters."""

    def __post_init__(self) -> None:
        for name in ("owner_cap", "canary_share", "least_yield"):
            if not 0 <= getattr(self, name) <= WHOLE:
                raise ValueError(f"{name} must be from 0 to {WHOLE} basis points")
        if self.prove_tokens < 1 or not 0 <= self.good_share <= 1:
            raise ValueError("prove_tokens must be at least 1, and good_share from 0 to 1")
