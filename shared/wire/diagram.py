"""Draws the state table as a Mermaid diagram, for the documentation."""

from shared.wire.states import SENDS, TABLE, Role, State


def mermaid(role: Role) -> str:
    """A `stateDiagram-v2` of `role`; `+` marks what it sends, `-` what it reads. Ends without a newline."""
    edges: dict[tuple[State, State], list[str]] = {}
    for (of, before, message), after in TABLE.items():
        if of is role:
            sign = "+" if message in SENDS[role] else "-"
            edges.setdefault((before, after), []).append(sign + message.__name__)
    order = list(State)
    lines = ["stateDiagram-v2", f"    [*] --> {State.CONNECTING.name}"]
    for (before, after), labels in sorted(
        edges.items(), key=lambda edge: (order.index(edge[0][0]), order.index(edge[0][1]))
    ):
        lines.append(f"    {before.name} --> {after.name}: {', '.join(sorted(labels))}")
    lines.append(f"    {State.CLOSED.name} --> [*]")
    return "\n".join(lines)
