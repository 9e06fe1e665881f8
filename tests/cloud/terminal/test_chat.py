"""`nexus chat` against a gateway over HTTP."""

import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cloud.terminal.chat import Chat
from cloud.terminal.client import GatewayClient, Options
from cloud.terminal.paint import Painter
from shared.errors import (
    ConfigError,
    InvalidInput,
    ModelNotFound,
    NexusError,
    Unauthorized,
    Unavailable,
    UpstreamFailed,
)

KEY = "right-key"
ANSWER = "Paris is the capital.\n"
Serve = Callable[[Any], str]


class Screen:
    """A chat whose output is kept."""

    def __init__(self, url: str, *, colour: bool = False, system: str | None = None) -> None:
        self.out, self.err = io.StringIO(), io.StringIO()
        self.client = GatewayClient(url, KEY)
        painter, notes = Painter(self.out, colour=colour), Painter(self.err, colour=False)
        options = Options(temperature=0.5, max_tokens=9, trace=colour)
        self.chat = Chat(self.client, self.client.choose(None), options, painter, notes, system=system)

    def says(self, *lines: str | type[BaseException]) -> int:
        typed: Iterator[str | type[BaseException]] = iter([*lines, EOFError])

        def read_line(_: str) -> str:
            line = next(typed)
            if isinstance(line, str):
                return line
            raise line

        with self.client:
            return self.chat.converse(read_line)


def test_a_conversation_carries_its_history(serve: Serve, fake: Any) -> None:
    """System message, questions and answers, and the parameters that were given."""
    screen = Screen(serve(fake), system="Be brief.")
    assert screen.says("Capital of France?", "", "Sure?") == 0
    assert fake.bodies[1]["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Capital of France?"},
        {"role": "assistant", "content": ANSWER},
        {"role": "user", "content": "Sure?"},
    ]
    assert (fake.bodies[0]["temperature"], fake.bodies[0]["max_tokens"]) == (0.5, 9)
    assert screen.out.getvalue() == ANSWER * 2
    assert "2.50 tokens per verify step · acceptance 50% (2 of 4 drafted tokens)" in screen.err.getvalue()


def test_tokens_are_coloured_by_origin(serve: Serve, fake: Any) -> None:
    """The trace is asked for with colour only."""
    screen = Screen(serve(fake), colour=True)
    screen.says("Capital of France?")
    assert fake.bodies[0]["nexus"] == {"trace": True}
    assert screen.out.getvalue() == (
        "\x1b[32mParis\x1b[0m\x1b[32m is\x1b[0m\x1b[33m the\x1b[0m\x1b[36m capital\x1b[0m.\n"
    )


def test_any_openai_compatible_gateway_will_do(serve: Serve, foreign: Any) -> None:
    """It is not sent our part of the request, and figures are what it gives."""
    screen = Screen(serve(foreign), colour=True)
    screen.says("Capital of France?")
    assert "nexus" not in foreign.bodies[0]
    assert screen.out.getvalue() == ANSWER
    assert "5 tokens in" in screen.err.getvalue()


def test_commands(serve: Serve, fake: Any) -> None:
    """/clear forgets, an unknown command is explained, /quit ends, Ctrl-C at the prompt does not."""
    screen = Screen(serve(fake))
    assert screen.says("one", "/clear", "/what", KeyboardInterrupt, "two", "/quit", "three") == 0
    assert [body["messages"][-1]["content"] for body in fake.bodies] == ["one", "two"]
    assert len(fake.bodies[1]["messages"]) == 1
    assert "/clear begins" in screen.err.getvalue()
    assert "Ctrl-D" in screen.err.getvalue()


def test_a_failed_question_is_forgotten(serve: Serve, fake: Any) -> None:
    """The gateway's words are shown, and the conversation goes on without it."""
    screen = Screen(serve(fake))
    screen.says("one", "too long", "two")
    assert "context holds 16 tokens" in screen.err.getvalue()
    assert "/clear begins a new one" in screen.err.getvalue()
    assert [m["content"] for m in fake.bodies[2]["messages"]] == ["one", ANSWER, "two"]


def test_an_answer_that_breaks_off_says_why(serve: Serve, fake: Any) -> None:
    """An error object in the middle of the stream."""
    fake.breaks = True
    screen = Screen(serve(fake))
    screen.says("one")
    assert screen.out.getvalue() == "Paris\n"
    assert "The answer broke off: The verifier failed." in screen.err.getvalue()


def test_ctrl_c_stops_the_answer_and_keeps_the_conversation(
    serve: Serve, fake: Any, eventually: Callable[..., None]
) -> None:
    """The gateway sees the connection close; what was said so far stays in the history."""
    fake.hangs = True
    screen = Screen(serve(fake))

    def interrupt() -> None:
        eventually(lambda: screen.out.getvalue() == "Paris")
        os.kill(os.getpid(), signal.SIGINT)

    helper = threading.Thread(target=interrupt)
    helper.start()
    with screen.client:
        assert screen.chat.ask("one") is False
        eventually(lambda: fake.gone == 1)
    helper.join()
    assert screen.out.getvalue() == "Paris\n"
    assert "(stopped)" in screen.err.getvalue()
    assert [m["content"] for m in screen.chat.messages] == ["one", "Paris"]


def refusal(url: str, key: str | None = KEY, model: str | None = None) -> NexusError:
    with pytest.raises(NexusError) as caught, GatewayClient(url, key) as client:
        client.choose(model)
    return caught.value


def test_errors_say_what_to_do(serve: Serve, fake: Any) -> None:
    """Wrong key, no key, model not served, nobody there, not an API, not a URL."""
    url = serve(fake)
    assert isinstance(wrong := refusal(url, "wrong-key"), Unauthorized)
    assert "does not take this key" in wrong.message
    assert "asks for a key: give it with NEXUS_API_KEY or --key" in refusal(url, None).message
    assert isinstance(missing := refusal(url, model="huge"), ModelNotFound)
    assert "'huge' is not served" in missing.message
    assert "Served there: large, small" in missing.message
    assert isinstance(nobody := refusal("http://127.0.0.1:1/v1"), Unavailable)
    assert "http://127.0.0.1:1/v1" in nobody.message
    assert "nexus gateway serve" in nobody.message
    assert isinstance(strange := refusal(url.removesuffix("/v1")), UpstreamFailed)
    assert "ends with /v1" in strange.message
    assert isinstance(refusal("127.0.0.1:8080"), ConfigError)
    assert isinstance(refusal(url, "schlüssel"), ConfigError)


def test_a_request_that_is_refused_gets_the_gateways_words(serve: Serve, fake: Any) -> None:
    """Such as a prompt longer than the context."""
    with GatewayClient(serve(fake), KEY) as client, pytest.raises(InvalidInput, match="Shorten the prompt"):
        list(client.stream(client.choose(None), [{"role": "user", "content": "too long"}], Options()))


def command(*arguments: str, url: str, said: str | None = None) -> "subprocess.CompletedProcess[str]":
    code = "import typer; from cloud.terminal.cli import chat; typer.run(chat)"
    return subprocess.run(
        [sys.executable, "-c", code, "--url", url, *arguments],
        input=said,
        stdin=subprocess.DEVNULL if said is None else None,
        env={**os.environ, "NEXUS_API_KEY": KEY},
        capture_output=True,
        text=True,
        check=False,
    )


def test_one_question_as_an_argument_or_piped_in(serve: Serve, fake: Any) -> None:
    """The answer alone is on standard output."""
    url = serve(fake)
    given = command("Capital of France?", "--model", "small", "--temperature", "0", url=url)
    assert (given.returncode, given.stdout, given.stderr) == (0, ANSWER, "")
    piped = command("--figures", url=url, said="Capital of\nFrance?\n")
    assert (piped.returncode, piped.stdout) == (0, ANSWER)
    assert "tokens per verify step" in piped.stderr
    assert fake.bodies[0]["model"] == "small"
    assert fake.bodies[1]["messages"][0]["content"] == "Capital of\nFrance?\n"


def test_the_command_fails_in_words(serve: Serve, fake: Any) -> None:
    """Status 1, one line, no traceback."""
    missing = command("Hello", "--model", "huge", url=serve(fake))
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr.startswith("Error: The model 'huge' is not served")
    assert command(url=serve(fake)).stderr.startswith("Error: There is no question")
