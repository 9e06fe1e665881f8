"""One node as the broker has measured it."""

import math
from collections import deque
from dataclasses import dataclass, field

from cloud.api.broker.conduct import Record
from cloud.api.broker.settings import BrokerSettings
from shared.ids import NodeId, StreamId
from shared.wire.messages import DemandReason, ModelOffer

MIN_SAMPLES = 8
"""Response times before a node can be called too slow."""


@dataclass(slots=True)
class Node:
    """`record` is that of its key, and outlives it."""

    node: NodeId
    models: tuple[ModelOffer, ...]
    slots: int
    settings: BrokerSettings
    record: Record
    open: set[StreamId] = field(default_factory=set)
    holding: bool = False
    draining: bool = False
    demand: DemandReason | None = None
    """Last reason sent."""
    _responses_ms: deque[float] = field(init=False)

    def __post_init__(self) -> None:
        self._responses_ms = deque(maxlen=self.settings.response_window)

    def offers(self, fingerprint: str) -> bool:
        return any(model.fingerprint == fingerprint for model in self.models)

    @property
    def available(self) -> bool:
        return not self.holding and not self.draining and len(self.open) < self.slots

    @property
    def load(self) -> float:
        return len(self.open) / self.slots

    def responded(self, response_ms: float) -> None:
        self._responses_ms.append(response_ms)

    def response_ms(self, quantile: float) -> float | None:
        """Nearest-rank quantile of the measured response times; none when there is none."""
        if not self._responses_ms:
            return None
        ranked = sorted(self._responses_ms)
        return ranked[max(math.ceil(quantile * len(ranked)) - 1, 0)]

    @property
    def poor(self) -> DemandReason | None:
        """Why this node comes last, if it does."""
        if self.record.low_acceptance:
            return DemandReason.LOW_ACCEPTANCE
        p50 = self.response_ms(0.5)
        if p50 is not None and len(self._responses_ms) >= MIN_SAMPLES and p50 > self.settings.max_hold_ms:
            return DemandReason.TOO_SLOW
        return None

    @property
    def score(self) -> float:
        """Acceptance times responsiveness; a node that is not measured yet counts as prompt."""
        p50 = self.response_ms(0.5) or 0.0
        scale = self.settings.response_scale_ms
        return self.record.acceptance * scale / (scale + p50)
