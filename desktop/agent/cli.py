"""`nexus agent`: draft for the cloud with this machine, pair it with an account, and look at its identity."""

import asyncio
import platform
from pathlib import Path
from typing import Annotated

import typer

from desktop.agent.identity import load_identity
from desktop.agent.report import LogFormat, make_log
from desktop.agent.settings import DEFAULT_GATEWAY, DEFAULT_MODEL, AgentSettings, load
from shared.errors import NexusError

app = typer.Typer(
    help="Share this machine's idle compute: run a small draft model for a Nexus cloud.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_EPILOG = (
    "Every setting can also be given as NEXUS_AGENT_<NAME> in the environment or as <name> = … in agent.toml "
    "(see --config); a flag is stronger than the environment, and that is stronger than the file. "
    "Examples:  nexus agent run  |  nexus agent run --gateway wss://gateway.example --model qwen2.5-0.5b  |  "
    "nexus agent run --engine transformers --streams 4"
)

_Config = Annotated[
    Path | None,
    typer.Option(help="Settings file in TOML. [default: agent.toml in the configuration folder, if it exists]"),
]


def _settings(config: Path | None, **flags: object) -> AgentSettings:
    try:
        return load(config, flags)
    except NexusError as error:
        raise _fail(error) from None


def _fail(error: NexusError) -> typer.Exit:
    typer.secho(f"Error: {error.message}", err=True, fg=typer.colors.RED)
    return typer.Exit(2)


@app.command(epilog=_EPILOG)
def run(
    gateway: Annotated[
        list[str] | None,
        typer.Option(
            help="Gateway to draft for: host:port, http(s)://… or ws(s)://…. Repeat the flag for more than one; "
            f"the next is tried when one cannot be reached. [default: {DEFAULT_GATEWAY}]"
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Draft model: a name from `nexus models list`, a Hugging Face id or a local folder. It must share "
            f"its tokenizer with a model that the gateway serves. [default: {DEFAULT_MODEL}]"
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="auto (vLLM where it is installed, else transformers), vllm, transformers, or module:factory "
            "for an engine of your own. [default: auto]"
        ),
    ] = None,
    streams: Annotated[
        int | None, typer.Option(help="Answers to draft for at once, in one batch (1 to 256). [default: 8]")
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(help="auto, float32, bfloat16 or float16: number format of the model. [default: auto]"),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="CPU threads of the engine. [default: 0, the engine chooses]")
    ] = None,
    threads_bind: Annotated[
        str | None,
        typer.Option(help="CPU cores for vLLM's CPU build, like 0-3. [default: vLLM chooses]"),
    ] = None,
    kv_cache_gib: Annotated[
        float | None, typer.Option(help="Memory for the KV cache on a CPU, GiB. [default: 1]")
    ] = None,
    max_model_len: Annotated[
        int | None,
        typer.Option(help="Longest prompt and answer to draft for, tokens. [default: 4096]"),
    ] = None,
    gpu_memory_utilization: Annotated[
        float | None,
        typer.Option(help="Share of the GPU's memory that the engine may take, 0 to 1. [default: 0.3]"),
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option(help="This node's secret key; made when missing. [default: node.key in the configuration folder]"),
    ] = None,
    worker_log: Annotated[
        Path | None,
        typer.Option(help="File for what the engine prints. [default: logs/draft-worker.log in the cache folder]"),
    ] = None,
    config: _Config = None,
    log_format: Annotated[
        LogFormat,
        typer.Option(help="text: one plain line per change. json: one object per line, for machines."),
    ] = LogFormat.TEXT,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also say what happens to each stream.")] = False,
) -> None:
    """Connect to a gateway and draft until Ctrl-C.

    The agent makes an outgoing connection only, proves its key, loads the draft model in a process of its own and
    guesses the next tokens of the answers that the gateway gives it. It reconnects for as long as it runs. Ctrl-C (or
    SIGTERM) ends it cleanly; no process stays behind.
    """
    settings = _settings(
        config,
        gateway=tuple(gateway) if gateway else None,
        model=model,
        engine=engine,
        streams=streams,
        dtype=dtype,
        threads=threads,
        threads_bind=threads_bind,
        kv_cache_gib=kv_cache_gib,
        max_model_len=max_model_len,
        gpu_memory_utilization=gpu_memory_utilization,
        key_file=key_file,
        worker_log=worker_log,
    )
    from desktop.agent.app import run_agent  # what only `run` needs stays out of `--help` and `key`
    from shared.models.progress import Reporter

    try:
        run_agent(settings, make_log(log_format, verbose=verbose), Reporter())
    except NexusError as error:
        raise _fail(error) from None


@app.command()
def pair(
    gateway: Annotated[
        str | None,
        typer.Option(help="Gateway to pair with: host:port, http(s)://… or ws(s)://…. [default: the first of `run`]"),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of this node for its owner. [default: this machine's name]")
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option(help="This node's secret key; made when missing. [default: node.key in the configuration folder]"),
    ] = None,
    config: _Config = None,
) -> None:
    """Pair this machine with your account, so that what it drafts is paid to you.

    Prints an address and a code, and waits. Open the address on any device, sign in, type the code and approve. Once
    paired, `nexus agent run` connects with the same key; a running agent connects by itself within two minutes.

    Example: nexus agent pair --gateway wss://gateway.example --name tower
    """
    settings = _settings(config, gateway=(gateway,) if gateway else None, key_file=key_file)
    from desktop.agent.pairing import Asked, Paired, Pairing, http_base, open_http

    def show(asked: Asked) -> None:
        minutes = max(asked.expires_in // 60, 1)
        typer.echo(
            f"To pair this machine with your account, open\n\n    {asked.verification_uri}\n\n"
            f"sign in, and type the code\n\n    {asked.user_code}\n\n"
            f"It is good for {minutes} minutes. Waiting; Ctrl-C ends it."
        )

    async def run() -> Paired:
        base = http_base(settings.gateway[0])
        async with open_http(base) as http:
            return await Pairing(http, load_identity(settings.key_file), name or platform.node(), show).run()

    try:
        paired = asyncio.run(run())
    except NexusError as error:
        raise _fail(error) from None
    except KeyboardInterrupt:
        typer.echo("Not paired.", err=True)
        raise typer.Exit(130) from None
    typer.echo(f"Paired: node {paired.access_token[:8]}… ({paired.name}) belongs to {paired.owner} now.")


@app.command()
def key(
    key_file: Annotated[
        Path | None,
        typer.Option(help="Secret key; made when missing. [default: node.key in the configuration folder]"),
    ] = None,
    config: _Config = None,
) -> None:
    """Print this node's id and public key, and where its secret key is kept."""
    try:
        identity = load_identity(_settings(config, key_file=key_file).key_file)
    except NexusError as error:
        raise _fail(error) from None
    typer.echo(f"node id     {identity.node_id}")
    typer.echo(f"public key  {identity.public_key_hex}")
    typer.echo(f"kept in     {identity.store}")
