"""The gateway's own metrics, in a registry of their own. Each one is described in docs/metrics.md."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_TIME_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

BROKER_COUNTERS = {
    "drafted_tokens": ("nexus_drafted_tokens", "Draft tokens that verifiers checked."),
    "accepted_tokens": ("nexus_accepted_draft_tokens", "Draft tokens that verifiers accepted."),
    "runner_up_tokens": (
        "nexus_accepted_runner_up_tokens",
        "Of these, the ones from other lines of guesses than a node's main one.",
    ),
    "output_tokens": ("nexus_verified_tokens", "Output tokens of streams that verifiers reported."),
    "baseline_tokens": (
        "nexus_baseline_tokens",
        "Draft tokens that the verifiers' own n-gram proposer would have had accepted.",
    ),
    "marginal_tokens": (
        "nexus_marginal_tokens",
        "Accepted draft tokens of nodes beyond those that prompt lookup would have had accepted.",
    ),
    "verify_steps": ("nexus_verify_steps", "Verification steps, summed over streams."),
    "drafts_forwarded": ("nexus_drafts_forwarded", "Draft messages passed on to verifiers."),
    "drafts_late": ("nexus_drafts_late", "Draft messages whose positions were all committed already."),
    "drafts_stale": ("nexus_drafts_stale", "Draft messages of an epoch that a divergence had ended."),
    "drafts_invalid": ("nexus_drafts_invalid", "Draft messages that broke a rule."),
    "drafts_excess": ("nexus_drafts_excess", "Draft messages beyond those that their node was asked for."),
    "nodes_demoted": ("nexus_nodes_demoted", "Times that a poor or silent node's stream was given to a better one."),
    "drafts_unassigned": ("nexus_drafts_unassigned", "Draft messages for streams not assigned to their node."),
    "nodes_refused": (
        "nexus_nodes_refused",
        "Times that a node was turned away: bad drafts, floods, no fitting model.",
    ),
    "broker_failures": ("nexus_broker_failures", "Broker events that failed: each is a fault in the gateway."),
    "verifier_late": ("nexus_verifier_late_tokens", "Draft tokens that reached verifiers too late."),
    "verifier_stale": ("nexus_verifier_stale_tokens", "Draft tokens of an ended epoch at verifiers."),
    "verifier_invalid": ("nexus_verifier_invalid_tokens", "Draft tokens that verifiers refused."),
    "verifier_voided": ("nexus_verifier_voided_tokens", "Draft tokens scheduled and withdrawn by the engine."),
    "verifier_steps": ("nexus_verifier_steps", "Engine steps that produced tokens."),
    "verifier_request_steps": ("nexus_verifier_request_steps", "Requests in engine steps, summed."),
    "verifier_holds": ("nexus_verifier_holds", "Times that a stream sat out a step for its draft."),
    "verifier_hold_misses": ("nexus_verifier_hold_misses", "Of these, how often no draft came."),
}
BROKER_GAUGES = {
    "nodes": ("nexus_nodes", "Draft nodes connected."),
    "nodes_poor": ("nexus_nodes_poor", "Connected nodes that come last: seldom right, or too slow."),
    "nodes_holding": ("nexus_nodes_holding", "Connected nodes whose owners need the machine now."),
    "node_slots": ("nexus_node_slots", "Streams that the nodes could draft for at once."),
    "node_slots_used": ("nexus_node_slots_used", "Streams that nodes draft for."),
    "streams": ("nexus_open_streams", "Streams that verifiers have open."),
    "streams_drafted_for": ("nexus_drafted_streams", "Open streams that have a node."),
    "verifiers": ("nexus_draft_ports_attached", "Draft ports attached."),
    "verifiers_configured": ("nexus_draft_ports_configured", "Draft ports configured."),
}
"""Names in the broker's snapshot, the metric that each becomes (counters get `_total`), and what it counts."""


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
        self.refused = Counter(
            "nexus_refused_requests", "Generations not let in, by the error's code.", ["code"], registry=registry
        )
        self.admission_s = Histogram(
            "nexus_admission_seconds", "Wait for a place.", buckets=_TIME_BUCKETS, registry=registry
        )
        self.waiting = Gauge("nexus_waiting_requests", "Generations waiting for a place.", registry=registry)
        self.running = Gauge("nexus_running_requests", "Generations let in and not yet over.", registry=registry)
        self.cost = Counter("nexus_cost_nanodollars", "What generations cost.", registry=registry)
        self.unrecorded = Gauge(
            "nexus_unrecorded_charges", "Charges that the database has not been told.", registry=registry
        )
        self.shares = Counter("nexus_node_shares_nanodollars", "What nodes get of settlements.", registry=registry)
        self.spot_price = Gauge(
            "nexus_spot_price_picodollars",
            "What a marginal token was paid in the latest minute.",
            ["model"],
            registry=registry,
        )
        self.token_value = Gauge(
            "nexus_token_value_picodollars",
            "What an accepted token was worth in the latest minute.",
            ["model"],
            registry=registry,
        )
        self.market_unrecorded = Gauge(
            "nexus_unrecorded_market_minutes", "Minutes that the database has not been told.", registry=registry
        )
        self.replayed = Counter(
            "nexus_replayed_answers", "Answers given again instead of being made again.", ["how"], registry=registry
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
        for name, (metric, text) in BROKER_COUNTERS.items():
            yield CounterMetricFamily(metric, text, value=values.get(name, 0))
        for name, (metric, text) in BROKER_GAUGES.items():
            yield GaugeMetricFamily(metric, text, value=values.get(name, 0))

    def describe(self) -> Iterator[Metric]:
        return iter(())
