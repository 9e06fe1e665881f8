"""How one request wants to be drafted for, and what becomes of it under the deployment's own bounds."""

from dataclasses import dataclass

from cloud.api.broker.settings import BrokerSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamPolicy:
    """A request's wishes. None leaves a matter to the deployment; a bound only ever lowers the deployment's."""

    allow_nodes: bool | None = None
    max_draft_tokens: int | None = None
    """0 = no drafts at all, not even the verifier's own."""
    max_wait_ms: float | None = None

    def nodes(self, settings: BrokerSettings) -> bool:
        """Whether a node may see the prompt."""
        if self.max_draft_tokens == 0:
            return False
        return settings.nodes_by_default if self.allow_nodes is None else self.allow_nodes

    def k(self, most: int) -> int:
        """Longest draft that a verification may take; `most` is the deployment's."""
        return most if self.max_draft_tokens is None else min(most, self.max_draft_tokens)

    def wait_ms(self, settings: BrokerSettings) -> float:
        """Longest time that a stream may sit out for a draft in flight."""
        return settings.max_hold_ms if self.max_wait_ms is None else min(settings.max_hold_ms, self.max_wait_ms)
