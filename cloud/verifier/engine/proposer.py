"""The engine's own proposer, which proposes nothing: drafts come from outside, through the scheduler."""

from typing import Any


class SilentProposer:
    """Loaded by vLLM's `custom_class` method; its presence alone switches the verification path on."""

    def __init__(self, vllm_config: Any) -> None:
        del vllm_config

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """There is no model."""

    def propose(self, sampled_token_ids: list[list[int]], *args: Any, **kwargs: Any) -> list[list[int]]:
        """No drafts, for every request of the batch."""
        return [[] for _ in sampled_token_ids]
