"""`nexus demo` and `nexus chat` on the command line."""

import os
import sys
from typing import Annotated, NoReturn

import typer

from cloud.terminal.client import GatewayClient, Options
from cloud.terminal.paint import RED, Painter, wants_colour
from shared.errors import ConfigError, NexusError

DEFAULT_URL = "http://127.0.0.1:8080/v1"

_Colour = Annotated[
    bool | None,
    typer.Option("--colour/--no-colour", help="Colour each token by its origin. (default: on a terminal)"),
]


def demo(
    tiny: Annotated[
        bool,
        typer.Option(
            "--tiny", help="Use SmolLM2 with 135 million parameters, which drafts for itself: quick and light."
        ),
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="End after the figures; the exit status says whether all went well.")
    ] = False,
    prompt: Annotated[str | None, typer.Option(help="What to ask. (default: a question about Python)")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, max=3000, help="Longest answer, tokens.")] = 200,
    draft: Annotated[int, typer.Option(min=1, max=64, help="Most draft tokens checked in one verify step.")] = 4,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the gateway; 0 takes a free one.")] = 0,
    colour: _Colour = None,
) -> None:
    """Run the whole of Nexus on this machine: a verifier, a gateway and one draft node.

    Fetches the models when they are missing, starts everything, asks one question, and shows which words of the
    answer were drafted by the small model. Then it stays up for your own requests until Ctrl-C, and leaves no process
    behind.

    Examples:

      nexus demo

      nexus demo --tiny --once

      nexus demo --prompt "Write a haiku about rain" --max-tokens 80
    """
    from cloud.terminal import recipe  # what only the demo needs

    if sys.platform == "win32":
        _fail(ConfigError("The demo needs Linux (or WSL) or macOS: vLLM does not run on Windows itself."))
    if missing := recipe.missing_packages():
        _fail(
            ConfigError(
                f"The demo runs every part of Nexus here, and {', '.join(missing)} is missing. "
                "Run `make demo`, or install nexus-inference[cloud,desktop,verifier] (verifier-cpu without a GPU)."
            )
        )
    from cloud.terminal.demo import Wishes, run

    wishes = Wishes(
        pair=recipe.TINY if tiny else recipe.STANDARD,
        prompt=prompt or recipe.PROMPT,
        max_tokens=max_tokens,
        draft=draft,
        port=port,
        once=once,
    )
    raise typer.Exit(run(wishes, sys.stdout, colour=wants_colour(sys.stdout, colour, os.environ)))


def chat(
    prompt: Annotated[
        str | None,
        typer.Argument(
            help="One question, answered on standard output. Without it: a conversation, or what is piped in."
        ),
    ] = None,
    url: Annotated[str, typer.Option(envvar="NEXUS_URL", help="Address of the API.")] = DEFAULT_URL,
    key: Annotated[
        str | None,
        typer.Option(
            envvar="NEXUS_API_KEY",
            help="API key. Other users of this machine can see it in a flag, so prefer the variable.",
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model to talk to. (default: the first one served)")] = None,
    system: Annotated[str | None, typer.Option(help="What the model is told before the conversation.")] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0, max=2, help="0 is the most likely answer. (default: the gateway's)")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Longest answer, tokens. (default: the gateway's)")
    ] = None,
    colour: _Colour = None,
    figures: Annotated[
        bool | None,
        typer.Option(
            "--figures/--no-figures", help="A line of figures after each answer. (default: in a conversation)"
        ),
    ] = None,
) -> None:
    """Talk to a model behind any OpenAI-compatible gateway.

    With a Nexus gateway, tokens are coloured by where they came from: drafted and accepted, corrected, or decoded
    without a draft. Ctrl-C stops an answer and keeps the conversation.

    Examples:

      nexus chat

      nexus chat --url http://127.0.0.1:8080/v1 --system "Answer briefly."

      nexus chat "What is a KV cache?" --temperature 0

      git diff | nexus chat --no-colour > review.txt
    """
    from cloud.terminal.chat import Chat, line_editing

    question = prompt if prompt is not None else None if sys.stdin.isatty() else sys.stdin.read()
    talking = question is None
    if question is not None and not question.strip():
        _fail(ConfigError("There is no question: give one as an argument or on standard input."))
    painter = Painter(sys.stdout, colour=wants_colour(sys.stdout, colour, os.environ))
    notes = Painter(sys.stderr, colour=wants_colour(sys.stderr, colour, os.environ))
    options = Options(temperature=temperature, max_tokens=max_tokens, trace=painter.colour)
    try:
        with GatewayClient(url, key) as client:
            show = talking if figures is None else figures
            session = Chat(client, client.choose(model), options, painter, notes, system=system, figures=show)
            if question is not None:
                status = session.once(question)
            else:
                line_editing()
                status = session.converse(input)
    except NexusError as error:
        _fail(error)
    raise typer.Exit(status)


def _fail(error: NexusError) -> NoReturn:
    Painter(sys.stderr, colour=wants_colour(sys.stderr, None, os.environ)).line(f"Error: {error.message}", RED)
    raise typer.Exit(1)
