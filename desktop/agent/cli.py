"""`nexus agent`: draft for the cloud with this machine, and look at its identity."""

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
