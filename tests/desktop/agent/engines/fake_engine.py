"""An engine without weights: the next token is a hash of all tokens before it. Passes the conformance suite.

The runner-up is the next id but one of sixteen, with a margin that is a hash too.
"""

import zlib
from array import array
from collections.abc import Sequence

from desktop.agent.engines.checks import check_round, check_streams
from desktop.agent.engines.port import Drafted, EngineConfig
from shared.errors import EngineError
from shared.ids import StreamId
from shared.sampling import Sampling

HANG = 7
"""A prefix that ends in this token makes `step` never return."""
BREAK = 8
"""One that ends in this makes `step` raise `EngineError`."""


def next_token(tokens: Sequence[int], vocabulary: int) -> int:
    """Never one of the first 16 ids, which tests use for themselves."""
    return 16 + zlib.crc32(array("q", tokens).tobytes()) % (vocabulary - 16)


def runner_up(token: int, vocabulary: int) -> int:
    """The second choice where `token` is the first."""
    return 16 + (token - 16 + 2) % (vocabulary - 16)


def margin(tokens: Sequence[int]) -> float:
    """How sure the choice after `tokens` is."""
    return zlib.crc32(array("q", [5, *tokens]).tobytes()) % 997 / 100


class FakeEngine:
    name = "fake"

    def __init__(self, config: EngineConfig) -> None:
        self.vocabulary = config.vocabulary or 1000
        self.max_streams = config.max_streams
        self.max_model_len = config.max_model_len
        self.closed = False
        self._rounds: dict[StreamId, tuple[list[int], int, bool]] = {}

    @property
    def busy(self) -> bool:
        return bool(self._rounds)

    def start(
        self,
        stream: StreamId,
        tokens: Sequence[int],
        count: int,
        sampling: Sampling,
        seed: int | None,
        runners_up: bool = False,
    ) -> None:
        check_round(tokens, count, vocabulary=self.vocabulary, max_model_len=self.max_model_len)
        self.stop(stream)
        check_streams(len(self._rounds), self.max_streams)
        self._rounds[stream] = (list(tokens), min(len(tokens) + count, self.max_model_len), runners_up)

    def stop(self, stream: StreamId) -> None:
        self._rounds.pop(stream, None)

    def forget(self, stream: StreamId) -> None:
        self.stop(stream)

    def step(self) -> list[Drafted]:
        drafted = []
        for stream, (tokens, end, runners_up) in list(self._rounds.items()):
            if tokens[-1] == HANG:
                while True:
                    pass
            if tokens[-1] == BREAK:
                raise EngineError("The fake engine broke, as it was told to.")
            token = next_token(tokens, self.vocabulary)
            second = (runner_up(token, self.vocabulary), margin(tokens)) if runners_up else (None, None)
            tokens.append(token)
            if len(tokens) >= end:
                self.stop(stream)
            drafted.append(Drafted(stream, len(tokens) - 1, token, len(tokens) >= end, *second))
        return drafted

    def close(self) -> None:
        self._rounds.clear()
        self.closed = True


def create(config: EngineConfig) -> FakeEngine:
    return FakeEngine(config)


def create_broken(config: EngineConfig) -> FakeEngine:
    raise RuntimeError("no such device")
