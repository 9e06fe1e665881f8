"""`nexus chat`: a conversation, or one answer, with any OpenAI-compatible gateway."""

import contextlib
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field

from cloud.terminal.answer import Figures
from cloud.terminal.client import GatewayClient, Options, ServedModel
from cloud.terminal.paint import DIM, RED, AnswerPrinter, Painter, figures_line
from shared.errors import InvalidInput, NexusError

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""
_HELP = "/clear begins a new conversation, /quit (or Ctrl-D) ends it; Ctrl-C stops an answer."


@dataclass
class Chat:
    """One conversation. Answers go to `painter`; figures, notes and errors to `notes`."""

    client: GatewayClient
    model: ServedModel
    options: Options
    painter: Painter
    notes: Painter
    system: str | None = None
    figures: bool = True
    clock: Callable[[], float] = time.monotonic
    messages: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.messages = [{"role": "system", "content": self.system}] if self.system else []

    def ask(self, prompt: str) -> bool:
        """Asks and prints the answer; false when Ctrl-C stopped it, in which case what was said so far counts.

        A failed question leaves the conversation as it was, and its `NexusError` is raised.
        """
        self.messages.append({"role": "user", "content": prompt})
        printer = AnswerPrinter(self.painter, traced=self.options.trace and self.model.by_nexus)
        figures: Figures | None = None
        tokens: int | None = None
        stopped = failed = False
        began = self.clock()
        try:
            with closing(self.client.stream(self.model, self.messages, self.options)) as pieces:
                for piece in pieces:
                    printer.feed(piece)
                    figures = piece.figures or figures
                    tokens = piece.completion_tokens or tokens
        except KeyboardInterrupt:
            stopped = True
        except NexusError:
            failed = True
            raise
        finally:
            if printer.text or not failed:
                printer.finish()
            if failed or not printer.text:
                self.messages.pop()
            else:
                self.messages.append({"role": "assistant", "content": printer.text})
        if stopped:
            self.notes.line("(stopped)", DIM)
        elif self.figures:
            self.notes.line(figures_line(figures, tokens, self.clock() - began), DIM)
        return not stopped

    def once(self, prompt: str) -> int:
        """One question; the exit status."""
        return 0 if self.ask(prompt) else INTERRUPTED

    def converse(self, read_line: Callable[[str], str]) -> int:
        """Questions until /quit or the end of the input. `read_line` is `input`, or behaves like it."""
        self.notes.line(f"{self.model.name} at {self.client.url}. {_HELP}", DIM)
        if self.options.trace and (legend := self.notes.legend()):
            self.notes.raw(legend + "\n")
        while True:
            try:
                said = read_line("\n> ").strip()
            except EOFError:
                self.notes.line()
                return 0
            except KeyboardInterrupt:
                self.notes.line("\n(Ctrl-D or /quit ends the chat)", DIM)
                continue
            match said:
                case "":
                    continue
                case "/quit" | "/exit":
                    return 0
                case "/clear":
                    self.clear()
                    self.notes.line("A new conversation.", DIM)
                case _ if said.startswith("/") and " " not in said and said.count("/") == 1:
                    self.notes.line(_HELP, DIM)
                case _:
                    self._answer(said)

    def _answer(self, prompt: str) -> None:
        try:
            self.ask(prompt)
        except NexusError as error:
            self.notes.line(f"Error: {error.message}", RED)
            if isinstance(error, InvalidInput) and any(message["role"] == "assistant" for message in self.messages):
                self.notes.line("If the conversation has become too long, /clear begins a new one.", DIM)


def line_editing() -> None:
    """Arrow keys and history in `input`, where the platform has them."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401
