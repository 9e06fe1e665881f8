"""`nexus receipts`: fetch an owner's receipts, and check a file of them without asking anybody."""

import os
from pathlib import Path
from typing import Annotated, Any, Final

import httpx2
import msgspec
import typer

from shared.errors import ConfigError, InvalidInput, NexusError, NotFound, Unavailable
from shared.receipts import Checked, KeyName, check, keyring, read_lines

TOKEN: Final = "NEXUS_TOKEN"
TIMEOUT_S: Final = 30.0
PAGE: Final = 1000
NANO_PER_DOLLAR: Final = 10**9

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""Receipts: what your nodes earned, signed by the coordinator, each naming the one before it.

`verify` needs the file and the coordinator's public keys, and no network: it says what was changed, left out, repeated,
put in another place, or never signed, and adds the receipts up.

Examples:

    nexus receipts export https://gateway.example > receipts.jsonl

    nexus receipts keys https://gateway.example > keys.json

    nexus receipts verify receipts.jsonl --keys keys.json
""",
)
Gateway = Annotated[str, typer.Argument(help="Address of the gateway, like https://gateway.example.")]


@app.command()
def export(
    gateway: Gateway,
    after: Annotated[int, typer.Option(help="Leave out receipts up to this number: you have them already.", min=0)] = 0,
) -> None:
    """Print all receipts, one on each line, and the coordinator's statement of how many there are.

    The token of your session (`POST /v1/account/sign-in`) comes from the environment: NEXUS_TOKEN.

    Example: `NEXUS_TOKEN=nxs_… nexus receipts export https://gateway.example > receipts.jsonl`
    """
    token = os.environ.get(TOKEN)
    if not token:
        raise ConfigError(f"Set {TOKEN} to the token of your session: see `POST /v1/account/sign-in`.")
    with _client(gateway, {"authorization": f"Bearer {token}"}) as client:
        while True:
            page = _get(client, "/v1/owner/receipts", {"after": str(after), "limit": str(PAGE)})
            for entry in page["data"]:
                typer.echo(msgspec.json.encode(entry).decode())
            if not page["has_more"]:
                typer.echo(msgspec.json.encode(page["statement"]).decode())
                return
            after = page["last"]


@app.command()
def keys(gateway: Gateway) -> None:
    """Print the public keys that receipts are checked with. Keep them: who cheats could give you others later.

    Example: `nexus receipts keys https://gateway.example > keys.json`
    """
    with _client(gateway, {}) as client:
        found = _get(client, "/receipts/keys", {})
    typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(help="What `nexus receipts export` printed.")],
    key: Annotated[
        list[str] | None, typer.Option(help="Public key of the coordinator, 64 hexadecimal digits. Repeat for several.")
    ] = None,
    keys_file: Annotated[Path | None, typer.Option("--keys", help="What `nexus receipts keys` printed.")] = None,
    owner: Annotated[str | None, typer.Option(help="Whose receipts they have to be; without it the file says.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Check every receipt, and that none is missing; exit 1 when something is wrong. Needs no network.

    Example: `nexus receipts verify receipts.jsonl --keys keys.json`
    """
    known = keyring([*map(_public, key or ()), *(_read_keys(keys_file) if keys_file else ())])
    if not known:
        raise ConfigError("Name the coordinator's public key with --key, or a file of them with --keys.")
    checked = check(read_lines(_read(file)), known, owner)
    typer.echo(_json(checked) if as_json else _words(checked, known))
    if checked.findings:
        raise typer.Exit(1)


def _words(checked: Checked, known: dict[KeyName, bytes]) -> str:
    lines = [
        f"line {each.line}: {each.message}" if each.line is not None else each.message for each in checked.findings
    ]
    if not checked.count:
        lines.append("There is no genuine receipt in this file.")
    else:
        lines.append(
            f"{checked.count} receipts of {checked.owner}, numbers {checked.first} to {checked.last}, "
            f"{_dollars(checked.total)} together."
        )
    if not checked.complete:
        lines.append("Whether some are missing at the end is not known: the file has no statement that fits.")
    if checked.findings:
        lines.append(f"{len(checked.findings)} things are wrong. What is counted above was signed for this owner.")
    else:
        lines.append(f"All were signed by the coordinator ({', '.join(sorted(known))}), and nothing is wrong.")
    return "\n".join(lines)


def _json(checked: Checked) -> str:
    data = {
        "owner": checked.owner,
        "count": checked.count,
        "first": checked.first,
        "last": checked.last,
        "total_nano_dollars": checked.total,
        "complete": checked.complete,
        "findings": [{"line": f.line, "fault": f.fault, "message": f.message} for f in checked.findings],
    }
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()


def _dollars(nano: int) -> str:
    """Exact."""
    sign, amount = ("-" if nano < 0 else ""), abs(nano)
    text = f"{amount // NANO_PER_DOLLAR}.{amount % NANO_PER_DOLLAR:09d}".rstrip("0").rstrip(".")
    return f"{sign}${text}"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None


def _read_keys(path: Path) -> list[bytes]:
    try:
        listed = msgspec.json.decode(_read(path), type=dict[str, Any])["data"]
        return [_public(each["public"]) for each in listed]
    except (msgspec.MsgspecError, KeyError, TypeError):
        raise InvalidInput(f"{path} is not what `nexus receipts keys` prints.") from None


def _public(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise InvalidInput("A public key of the coordinator has 32 bytes, 64 hexadecimal digits.") from None


def _client(gateway: str, headers: dict[str, str]) -> httpx2.Client:
    base = gateway.rstrip("/").removesuffix("/v1")
    return httpx2.Client(base_url=base, headers=headers, timeout=TIMEOUT_S)


def _get(client: httpx2.Client, path: str, query: dict[str, str]) -> dict[str, Any]:
    try:
        response = client.get(path, params=query)
        data: dict[str, Any] = msgspec.json.decode(response.content, type=dict[str, Any])
    except (httpx2.HTTPError, httpx2.InvalidURL, msgspec.MsgspecError):
        raise Unavailable(f"{client.base_url} does not answer like a gateway of Nexus.") from None
    if response.status_code != 200:
        told = data.get("error", {})
        words = told.get("message") if isinstance(told, dict) else None
        kind = NotFound if response.status_code == 404 else NexusError
        raise kind(f"The gateway says: {words or response.status_code}")
    return data
