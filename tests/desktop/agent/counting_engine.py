"""A draft engine for `--engine counting_engine:create`: it guesses that tokens count upwards, on any machine.

The prefix (13, 13) kills its process, as a crash of a real engine would.
"""

import os
from collections.abc import Sequence

from desktop.agent.engines.port import Drafted, EngineConfig
from shared.ids import StreamId
from shared.sampling import Sampling

DEADLY = (13, 13)


class CountingEngine:
    """See `DraftEngine`."""

    name = "counting 1"

    def __init__(self, config: EngineConfig) -> None:
        self.vocabulary = config.vocabulary
        self.max_streams = config.max_streams
        self.max_model_len = config.max_model_len
        self._rounds: dict[StreamId, tuple[int, int, int]] = {}

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
        if tuple(tokens[:2]) == DEADLY:
            os.abort()
        self._rounds[stream] = (len(tokens), tokens[-1], count)

    def stop(self, stream: StreamId) -> None:
        self._rounds.pop(stream, None)

    def forget(self, stream: StreamId) -> None:
        self.stop(stream)

    def step(self) -> list[Drafted]:
        drafted = []
        for stream, (pos, last, left) in list(self._rounds.items()):
            token = (last + 1) % self.vocabulary
            drafted.append(Drafted(stream, pos, token, left == 1))
            if left == 1:
                del self._rounds[stream]
            else:
                self._rounds[stream] = (pos + 1, token, left - 1)
        return drafted

    def close(self) -> None:
        self._rounds.clear()


def create(config: EngineConfig) -> CountingEngine:
    return CountingEngine(config)
