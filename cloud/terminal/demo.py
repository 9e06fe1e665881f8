"""`nexus demo`: starts a verifier, a gateway and one draft node, asks them something, and shows what happened."""

import itertools
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from cloud.terminal.answer import Figures
from cloud.terminal.client import GatewayClient, Options
from cloud.terminal.paint import BOLD, DIM, RED, AnswerPrinter, Painter, figures_table
from cloud.terminal.parts import GRACE_S, Part, Parts, State
from cloud.terminal.recipe import POLL_S, Pair, Recipe, clean_environment, recipe, short_temporary_folder
from shared.errors import EngineError, ModelError, NexusError

STILL_EVERY_S = 30.0
"""Without a terminal, how often the demo says that it still waits."""
MOST_ANSWERS = 3
"""How often the demo asks until a draft is accepted: on a busy machine the first may come too late for an answer."""
INTERRUPTED = 130
"""Exit status after Ctrl-C before the answer, as shells have it."""


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the user asked for."""

    pair: Pair
    prompt: str
    max_tokens: int
    draft: int
    port: int
    once: bool


class PartFailed(EngineError):
    """A part of the demo ended or did not become ready."""

    def __init__(self, part: Part) -> None:
        super().__init__(part.failure)
        self.part = part


class Terminated(BaseException):
    """SIGTERM or SIGHUP arrived."""


def run(wishes: Wishes, out: TextIO, *, colour: bool) -> int:
    """The whole demo, for `nexus demo`; the exit status."""
    folder = Path(tempfile.mkdtemp(prefix="nexus-", dir=short_temporary_folder()))
    key = "nx-" + secrets.token_urlsafe(18)
    made = recipe(wishes.pair, folder=folder, port=wishes.port, draft=wishes.draft, key=key)
    return Demo(made, wishes, folder, Painter(out, colour=colour), live=out.isatty()).run()


class Demo:
    """Runs a recipe. `folder` gets the logs; it is removed when all went well, and kept and named when not."""

    def __init__(
        self,
        made: Recipe,
        wishes: Wishes,
        folder: Path,
        painter: Painter,
        *,
        live: bool = False,
        grace_s: float = GRACE_S,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._recipe = made
        self._wishes = wishes
        self._folder = folder
        self._painter = painter
        self._live = live
        self._sleep = sleep
        self._clock = clock
        environ = clean_environment(os.environ, folder)
        self._parts = Parts([Part(spec, folder, environ=environ, grace_s=grace_s, clock=clock) for spec in made.parts])
        self._answered = False

    def run(self) -> int:
        """Never leaves a process behind; the exit status."""
        status = 1
        with _terminated_by_signals():
            try:
                status = self._run()
            except PartFailed as error:
                self._show_failure(error)
            except NexusError as error:
                self._clear()
                self._painter.line(f"Error: {error.message}", RED)
            except KeyboardInterrupt:
                self._clear()
                status = 0 if self._answered and not self._wishes.once else INTERRUPTED
            except Terminated:
                status = 128 + signal.SIGTERM
            finally:
                self._end()
        if status in (0, INTERRUPTED):
            shutil.rmtree(self._folder, ignore_errors=True)
        else:
            self._painter.line(f"The logs are in {self._folder}.")
        return status

    def _run(self) -> int:
        pair = self._recipe.pair
        drafter = "drafts for itself" if pair.draft == pair.target else f"{pair.draft} drafts for it"
        self._painter.line(f"Nexus demo: {pair.target} answers, {drafter}. Everything runs on this machine.", BOLD)
        self._fetch()
        self._painter.line(f"Starting verifier, gateway and draft node; their logs are in {self._folder}.")
        self._parts.start()
        self._wait_until_ready()
        self._explain()
        problem = self._ask()
        for _ in range(MOST_ANSWERS - 1):
            if problem == NO_DRAFT:
                self._painter.line("No draft came in time for this answer. Asking once more…", DIM)
                self._painter.line()
                problem = self._ask()
        if problem:
            self._painter.line(f"Something is wrong: {problem}", RED)
        if self._wishes.once:
            return 1 if problem else 0
        self._answered = True
        self._stay()
        return 0

    def _fetch(self) -> None:
        self._painter.line("Looking for the models…")
        if subprocess.run(
            self._recipe.fetch, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False
        ).returncode:
            raise ModelError("The models could not be fetched; what is wrong is said above.")

    def _wait_until_ready(self) -> None:
        told: set[str] = set()
        still_at = self._clock() + STILL_EVERY_S
        spinner = itertools.cycle("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
        while True:
            self._check()
            for part in self._parts:
                if part.state is State.READY and part.spec.name not in told:
                    told.add(part.spec.name)
                    self._clear()
                    self._painter.line(f"  {part.spec.title:<34} ready after {part.seconds:.0f} s")
            waiting = [part for part in self._parts if part.state is State.STARTING]
            if not waiting:
                return
            names = " and ".join(part.spec.title.split(" (")[0] for part in waiting)
            words = f"waiting for {names}, {waiting[0].seconds:.0f} s"
            if self._live:
                self._clear()
                self._painter.raw(f"  {next(spinner)} {words}")
            elif self._clock() >= still_at:
                still_at = self._clock() + STILL_EVERY_S
                self._painter.line(f"  still {words}")
            self._sleep(POLL_S)

    def _check(self) -> None:
        failed = self._parts.failed()
        if failed is not None:
            raise PartFailed(failed)

    def _explain(self) -> None:
        made, line = self._recipe, self._painter.line
        line()
        line(f"  API    {made.url}")
        line(f"  key    {made.key}")
        line(f"  model  {made.pair.target}")
        line()
        line("Try it from another terminal:", BOLD)
        line()
        for text in [*_curl(made), "", *_python(made), "", f"{command_name()} chat --url {made.url} --key {made.key}"]:
            line(f"    {text}" if text else "")
        line()

    def _ask(self) -> str:
        """Sends the prompt and prints answer and figures; what is wrong with them, in words, or nothing."""
        painter = self._painter
        painter.line(f"Prompt: {self._wishes.prompt}", BOLD)
        painter.line()
        if legend := painter.legend():
            painter.raw(legend + "\n\n")
        printer = AnswerPrinter(painter, traced=True)
        figures: Figures | None = None
        tokens: int | None = None
        with GatewayClient(self._recipe.url, self._recipe.key) as client:
            model = client.choose(self._recipe.pair.target)
            options = Options(temperature=0.0, max_tokens=self._wishes.max_tokens, trace=True)
            began = self._clock()
            try:
                for piece in client.stream(model, [{"role": "user", "content": self._wishes.prompt}], options):
                    printer.feed(piece)
                    figures = piece.figures or figures
                    tokens = piece.completion_tokens or tokens
            except NexusError:
                self._check()  # a part that has died says more
                raise
            finally:
                printer.finish()
            wall_s = self._clock() - began
        painter.line()
        for text in figures_table(figures, tokens, wall_s):
            painter.line(text)
        painter.line()
        return _fault(printer.text, figures)

    def _stay(self) -> None:
        self._painter.line(f"Running at {self._recipe.url} until Ctrl-C.")
        while True:
            self._check()
            self._sleep(POLL_S)

    def _end(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if not self._parts.started:
            return
        self._painter.write("Stopping… ", DIM)
        self._parts.end()
        self._painter.line("all processes have ended.", DIM)

    def _show_failure(self, error: PartFailed) -> None:
        self._clear()
        self._painter.line(f"Error: the {error.message}. The end of its log:", RED)
        for text in error.part.tail():
            self._painter.line(f"    {text}")

    def _clear(self) -> None:
        if self._live:
            self._painter.raw("\r\x1b[K")


NO_DRAFT = "no drafted token was accepted; the agent's log may say why."


def _fault(text: str, figures: Figures | None) -> str:
    if not text.strip():
        return "the answer is empty."
    if figures is None:
        return "the gateway gave no figures."
    if not figures.accepted:
        return NO_DRAFT
    return ""


def _curl(made: Recipe) -> list[str]:
    body = f'{{"model": "{made.pair.target}", "messages": [{{"role": "user", "content": "Hello!"}}]}}'
    return [
        f"curl {made.url}/chat/completions \\",
        f"  -H 'Authorization: Bearer {made.key}' -H 'Content-Type: application/json' \\",
        f"  -d '{body}'",
    ]


def _python(made: Recipe) -> list[str]:
    return [
        "from openai import OpenAI  # pip install openai",
        f'client = OpenAI(base_url="{made.url}", api_key="{made.key}")',
        f'answer = client.chat.completions.create(model="{made.pair.target}",',
        '    messages=[{"role": "user", "content": "Hello!"}])',
        "print(answer.choices[0].message.content)",
    ]


def command_name() -> str:
    """What to type for this command from here."""
    if shutil.which("nexus"):
        return "nexus"
    script = Path(sys.executable).parent / "nexus"
    return os.path.relpath(script) if script.is_relative_to(Path.cwd()) else str(script)


@contextmanager
def _terminated_by_signals() -> Iterator[None]:
    """SIGTERM and a closed terminal end the demo as cleanly as Ctrl-C does."""

    def terminate(*_: object) -> None:
        raise Terminated

    numbers = [signal.SIGTERM, signal.SIGHUP]
    before = [signal.signal(number, terminate) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
