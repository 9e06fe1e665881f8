"""What the broker counts."""

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class BrokerCounts:
    """Since the gateway started; messages unless said otherwise."""

    drafts_forwarded: int = 0
    drafts_unassigned: int = 0
    """For a stream that the node does not draft for (any more)."""
    drafts_late: int = 0
    """Every position was committed before the draft came."""
    drafts_stale: int = 0
    """Of an epoch that a divergence had already ended."""
    drafts_invalid: int = 0
    drafts_excess: int = 0
    """Beyond those that the node was asked for."""
    nodes_demoted: int = 0
    """Times that a node's streams were given to a better one."""
    nodes_refused: int = 0
    streams_opened: int = 0
    streams_unregistered: int = 0
    streams_orphaned: int = 0
    resyncs: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    runner_up_tokens: int = 0
    """Of the accepted ones, those that came from another line of a node than its main one (`candidates`)."""
    output_tokens: int = 0
    verify_steps: int = 0
    baseline_tokens: int = 0
    """Draft tokens that the verifier's own n-gram proposer would have had accepted."""

    marginal_tokens: int = 0
    """Accepted tokens of nodes beyond those that prompt lookup would have had."""

    def as_dict(self) -> dict[str, int]:
        return asdict(self)
