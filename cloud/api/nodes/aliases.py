"""Names of streams on one connection."""

from shared.ids import StreamId


class Aliases:
    """Gives each opening of a stream a name of its own.

    The protocol uses an id once per session, but a stream may come back to a node (after a hold, or when
    a verifier was restarted), and drafts of an earlier opening must be told apart.
    """

    def __init__(self) -> None:
        self._openings = 0
        self._names: dict[StreamId, str] = {}
        self._streams: dict[str, StreamId] = {}

    def open(self, stream: StreamId) -> str:
        self._openings += 1
        name = f"{stream}~{self._openings}"
        self._names[stream] = name
        self._streams[name] = stream
        return name

    def close(self, stream: StreamId) -> str:
        name = self._names.pop(stream)
        del self._streams[name]
        return name

    def name(self, stream: StreamId) -> str:
        return self._names[stream]

    def stream(self, name: str) -> StreamId | None:
        """The stream that is open under this name, if it still is."""
        return self._streams.get(name)
