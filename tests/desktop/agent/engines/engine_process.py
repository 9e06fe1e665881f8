"""Runs an engine in a process of its own, so that what its library does to a process stays there.

Started as `python engine_process.py ENGINE FOLDER`: one Python literal per line in, one per line out.
"""

import ast
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from desktop.agent.engines.port import Drafted, EngineConfig
from shared.errors import EngineError
from shared.ids import StreamId
from shared.sampling import Sampling

MAX_MODEL_LEN = 96
MAX_STREAMS = 4


class EngineProcess:
    """The port, forwarded."""

    def __init__(self, engine: str, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, engine, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.name, self.vocabulary, self.max_streams, self.max_model_len = self._answer()

    @property
    def busy(self) -> bool:
        return bool(self._call("busy"))

    def start(
        self,
        stream: StreamId,
        tokens: Sequence[int],
        count: int,
        sampling: Sampling,
        seed: int | None,
        runners_up: bool = False,
    ) -> None:
        self._call("start", stream, list(tokens), count, msgspec.to_builtins(sampling), seed, runners_up)

    def stop(self, stream: StreamId) -> None:
        self._call("stop", stream)

    def forget(self, stream: StreamId) -> None:
        self._call("forget", stream)

    def step(self) -> list[Drafted]:
        return [Drafted(*item) for item in self._call("step")]

    def close(self) -> None:
        self._call("close")
        self._process.communicate()
        assert self._process.returncode == 0

    def _call(self, *request: Any) -> Any:
        assert self._process.stdin is not None
        print(repr(request), file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("answer "):
                return ast.literal_eval(line.removeprefix("answer "))
            if line.startswith("error "):
                raise EngineError(ast.literal_eval(line.removeprefix("error ")))
        raise AssertionError(f"the engine's process ended with {self._process.wait()}")


def main() -> None:
    from desktop.agent.engines import choose
    from shared.fingerprint import vocabulary

    name, folder = sys.argv[1:]
    config = EngineConfig(
        model=folder,
        vocabulary=vocabulary(Path(folder)),
        max_streams=MAX_STREAMS,
        max_model_len=MAX_MODEL_LEN,
        dtype="float32",
        device="cpu",
        threads=1,
        kv_cache_bytes=256 << 20,
    )
    engine = choose.create(name, config)
    about = (engine.name, engine.vocabulary, engine.max_streams, engine.max_model_len)
    print("answer", repr(about), flush=True)
    for line in sys.stdin:
        method, *arguments = ast.literal_eval(line)
        try:
            match method:
                case "busy":
                    result: Any = engine.busy
                case "start":
                    *round_, sampling, seed, runners_up = arguments
                    result = engine.start(*round_, msgspec.convert(sampling, Sampling), seed, runners_up)
                case "step":
                    result = [tuple(drafted) for drafted in engine.step()]
                case _:
                    result = getattr(engine, method)(*arguments)
        except EngineError as exc:
            print("error", repr(exc.message), flush=True)
        else:
            print("answer", repr(result), flush=True)


if __name__ == "__main__":
    main()
