"""The gateway's own metrics, in a registry of their own. Each one is described in docs/metrics.md."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_TIME_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

BROKER_COUNTERS = {
    "drafted": "Draft tokens that verifiers checked.",
    "accepted": "Draft tokens that verifiers accepted.",
    "late": "Draft tokens for positions that were already committed when they came.",
    "stale": "Draft tokens of an epoch that a divergence had already ended.",
    "invalid": "Draft tokens refused because they broke a rule.",
    "verify_steps": "Verifications, summed over streams.",
}
BROKER_GAUGES = {
    "nodes": "Draft nodes connected.",
    "streams": "Streams registered and not yet released.",
}


class Metrics:
    """`snapshot` is read at each scrape; a name that it lacks counts as 0."""

    def __init__(self, snapshot: Callable[[], Mapping[str, float]]) -> None:
        registry = self.registry = CollectorRegistry()
        self.requests = Counter(
            "nexus_requests",
            "Requests answered.",
            ["route", "status"],
            registry=registry,
        )
        self.request_s = Histogram(
            "nexus_request_seconds",
            "From the request's first byte to the answer's last.",
            ["route"],
            buckets=_TIME_BUCKETS,
            registry=registry,
        )
        self.open_requests = Gauge("nexus_open_requests", "Requests being worked on.", registry=registry)
        self.first_token_s = Histogram(
            "nexus_time_to_first_token_seconds",
            "From the start of a generation to its first text or token.",
            buckets=_TIME_BUCKETS,
            registry=registry,
        )
        self.prompt_tokens = Counter("nexus_prompt_tokens", "Prompt tokens of generations.", registry=registry)
        self.completion_tokens = Counter(
            "nexus_completion_tokens",
            "Output tokens of generations.",
            registry=registry,
        )
        self.disconnects = Counter(
            "nexus_client_disconnects",
            "Generations stopped because the caller went away.",
            registry=registry,
        )
        registry.register(_Broker(snapshot))

    def render(self) -> bytes:
        """The text exposition format."""
        return generate_latest(self.registry)


class _Broker(Collector):
    def __init__(self, snapshot: Callable[[], Mapping[str, float]]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        values = self._snapshot()
        for name, text in BROKER_COUNTERS.items():
            yield CounterMetricFamily(metric_name(name), text, value=values.get(name, 0))
        for name, text in BROKER_GAUGES.items():
            yield GaugeMetricFamily(metric_name(name), text, value=values.get(name, 0))

    def describe(self) -> Iterator[Metric]:
        return iter(())


def metric_name(name: str) -> str:
    """How a broker figure is called in the exposition, without the `_total` of counters."""
    return {
        "drafted": "nexus_drafted_tokens",
        "accepted": "nexus_accepted_draft_tokens",
        "late": "nexus_late_draft_tokens",
        "stale": "nexus_stale_draft_tokens",
        "invalid": "nexus_invalid_draft_tokens",
        "verify_steps": "nexus_verify_steps",
        "nodes": "nexus_nodes",
        "streams": "nexus_open_streams",
    }[name]
