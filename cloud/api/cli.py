"""`nexus gateway`: serve the API, or check the settings."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from cloud.api.settings_sources import LoadedSettings, SettingsInvalid, load
from shared.errors import NexusError

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""The OpenAI-compatible gateway: takes requests, sends them to verifiers, and lets nodes draft.

Settings come from a TOML file, the environment (`NEXUS_GATEWAY_…`) and flags; the later wins.

Examples:

    nexus keys create me && nexus gateway serve

    NEXUS_GATEWAY_API_KEYS=my-secret-key nexus gateway serve

    nexus gateway serve --config gateway.toml --port 9000

    nexus gateway check-config --config gateway.toml

Then, with any OpenAI client: base_url http://127.0.0.1:8080/v1 and that key.
""",
)

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="TOML file; without it gateway.toml in the Nexus settings folder, if there is one."),
]
HostOption = Annotated[str | None, typer.Option(help="Address to listen on; 0.0.0.0 opens it to the network.")]
PortOption = Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one and prints it.")]
VerifierOption = Annotated[
    list[str] | None,
    typer.Option(
        "--verifier",
        help="URL of a verifier, with its draft ports behind an equals sign if they are not the default: "
        "http://127.0.0.1:8000=ipc:///run/draft-port-0,ipc:///run/draft-port-1. Repeat for several.",
    ),
]
KeysFileOption = Annotated[Path | None, typer.Option("--api-keys-file", help="File with one API key on each line.")]
LogLevelOption = Annotated[str | None, typer.Option(help="debug, info, warning or error.")]
LogFormatOption = Annotated[str | None, typer.Option(help="text or json.")]


@app.command()
def serve(
    config: ConfigOption = None,
    host: HostOption = None,
    port: PortOption = None,
    verifier: VerifierOption = None,
    api_keys_file: KeysFileOption = None,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
) -> None:
    """Run the gateway until SIGTERM or Ctrl-C; running answers get some time to end.

    Example: `nexus gateway serve --port 0 --verifier http://127.0.0.1:8000`
    """
    loaded = _load(config, _flags(host, port, verifier, api_keys_file, log_level, log_format))
    from cloud.api import logs
    from cloud.api.app import create_gateway, prepare
    from cloud.api.server import Server, uvicorn_config

    settings = loaded.settings
    logs.configure(settings.log.level, settings.log.format)
    try:
        asyncio.run(prepare(settings))
    except NexusError as error:
        typer.echo(f"error: {error.message}", err=True)
        raise typer.Exit(1) from None
    gateway = create_gateway(settings)
    server = Server(
        uvicorn_config(gateway, settings), gateway.state.desk.gate, stalled_s=settings.limits.stalled_client_s
    )
    server.run()
    if not server.started:
        sys.exit(1)


@app.command("check-config")
def check_config(
    config: ConfigOption = None,
    host: HostOption = None,
    port: PortOption = None,
    verifier: VerifierOption = None,
    api_keys_file: KeysFileOption = None,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
) -> None:
    """Print the settings in force and where each comes from, secrets masked; exit 1 and list all errors if wrong.

    Example: `nexus gateway check-config --config gateway.toml`
    """
    loaded = _load(config, _flags(host, port, verifier, api_keys_file, log_level, log_format))
    rows = list(loaded.lines())
    width = max(len(name) for name, _, _ in rows)
    for name, value, source in rows:
        typer.echo(f"{name:<{width}}  {value}  ({source})")


@app.command()
def openapi() -> None:
    """Print the OpenAPI document of the API, as the gateway serves it at `/openapi.json`.

    Example: `nexus gateway openapi > nexus.json`
    """
    from cloud.api.openapi.document import rendered

    typer.echo(rendered(), nl=False)


def _load(config: Path | None, flags: dict[str, Any]) -> LoadedSettings:
    try:
        return load(config, flags)
    except SettingsInvalid as error:
        for problem in error.problems:
            typer.echo(f"error: {problem}", err=True)
        raise typer.Exit(1) from None


def _flags(
    host: str | None,
    port: int | None,
    verifiers: list[str] | None,
    api_keys_file: Path | None,
    log_level: str | None,
    log_format: str | None,
) -> dict[str, Any]:
    """Only what was given, nested like the settings."""
    given: dict[str, Any] = {"host": host, "port": port, "api_keys_file": api_keys_file}
    if verifiers:
        given["verifiers"] = [_verifier(text) for text in verifiers]
    log = {"level": log_level, "format": log_format}
    given["log"] = {name: value for name, value in log.items() if value is not None} or None
    return {name: value for name, value in given.items() if value is not None}


def _verifier(text: str) -> dict[str, Any]:
    url, _, ports = text.partition("=")
    return {"url": url, "draft_ports": ports.split(",")} if ports else {"url": url}
