"""The agent's side of pairing, against scripted gateways."""

import base64
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import httpx2
import pytest
from typer.testing import CliRunner

from desktop.agent import cli
from desktop.agent.identity import Identity, load_identity
from desktop.agent.pairing import Asked, Pairing, PairingFailed, http_base
from shared.errors import Unavailable
from shared.keys import NodeKey, verify_pairing

CODES = {
    "device_code": "device-1",
    "user_code": "WDJB-MJHT",
    "verification_uri": "https://nexus.example/device",
    "expires_in": 900,
    "interval": 5,
}
PAIRED = {"access_token": "n" * 32, "token_type": "node_key", "name": "tower", "owner": "acct_1"}
Reply = httpx2.Response | Exception


def wrong(code: str, words: str = "words of the gateway") -> httpx2.Response:
    return httpx2.Response(400, json={"error": code, "error_description": words})


class Script:
    """A gateway that gives these answers, one after the other, and a clock that goes on by what is slept."""

    def __init__(self, identity: Identity, *replies: Reply) -> None:
        self.identity = identity
        self.replies = list(replies)
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        self.slept: list[float] = []
        self.shown: list[Asked] = []
        self.now = 0.0

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append((request.url.path, parse_qs(request.content.decode())))
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    async def run(self) -> Any:
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(self.answer), base_url="http://gateway") as http:
            show, clock, sleep = self.shown.append, lambda: self.now, self.sleep
            return await Pairing(http, self.identity, "tower", show, clock=clock, sleep=sleep).run()


@pytest.fixture
def identity(tmp_path: Path) -> Identity:
    return load_identity(tmp_path / "node.key")


async def test_a_node_is_paired(identity: Identity) -> None:
    """It asks with its public key, shows the code once, waits as long as it is told, and proves its key each time."""
    slow = wrong("slow_down")
    pending = wrong("authorization_pending")
    script = Script(
        identity, httpx2.Response(200, json=CODES), pending, slow, pending, httpx2.Response(200, json=PAIRED)
    )
    result = await script.run()
    assert (result.access_token, result.owner) == ("n" * 32, "acct_1")
    assert script.slept == [5, 5, 10, 10]
    assert [asked.user_code for asked in script.shown] == ["WDJB-MJHT"]
    path, form = script.asked[0]
    assert path == "/v1/device/code"
    assert form == {"client_id": ["nexus-agent"], "public_key": [identity.public_key_hex], "name": ["tower"]}
    for path, form in script.asked[1:]:
        assert path == "/v1/device/token" and form["device_code"] == ["device-1"]
        signature = base64.urlsafe_b64decode(form["signature"][0])
        verify_pairing(identity.key.public, signature, "device-1", "WDJB-MJHT", "https://nexus.example/device")


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (wrong("access_denied", "The owner has denied this node."), "The owner has denied this node."),
        (wrong("expired_token"), "expired before anybody approved it. Run `nexus agent pair` again"),
        (wrong("invalid_grant", "No such code."), "No such code."),
        (httpx2.Response(404, text="<html>"), "HTTP 404"),
        (httpx2.Response(200, text="<html>"), "update Nexus"),
    ],
)
async def test_what_ends_it(identity: Identity, reply: httpx2.Response, words: str) -> None:
    """Each in words for the owner."""
    with pytest.raises(PairingFailed) as caught:
        await Script(identity, httpx2.Response(200, json=CODES), reply).run()
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (httpx2.Response(200, text="<html>"), "no Nexus gateway"),
        (httpx2.Response(200, json={"device_code": 5}), "no Nexus gateway"),
        (httpx2.Response(404, json={"error": {"message": "Nothing here."}}), "no accounts"),
        (wrong("invalid_request", "The field is missing."), "The field is missing."),
        (httpx2.Response(401, json={"error": {"message": "No API key given."}}), "No API key given."),
    ],
)
async def test_a_gateway_that_gives_no_code(identity: Identity, reply: httpx2.Response, words: str) -> None:
    """Nothing is shown, nothing is waited for."""
    script = Script(identity, reply)
    with pytest.raises(PairingFailed) as caught:
        await script.run()
    assert words in caught.value.message and not script.shown and not script.slept


async def test_a_gateway_that_cannot_be_reached(identity: Identity) -> None:
    """At first that is the end; later it is waited for, ever longer (RFC 8628, 3.5)."""
    lost = httpx2.ConnectError("refused")
    with pytest.raises(Unavailable, match="cannot be reached"):
        await Script(identity, lost).run()
    busy = httpx2.Response(503, json={"error": {"message": "busy"}})
    pending, done = wrong("authorization_pending"), httpx2.Response(200, json=PAIRED)
    script = Script(identity, httpx2.Response(200, json=CODES), lost, busy, lost, pending, done)
    await script.run()
    assert script.slept == [5, 10, 15, 25, 5]


async def test_it_does_not_wait_for_ever(identity: Identity) -> None:
    """Nor longer than the code lasts, if the gateway is gone."""
    script = Script(identity, httpx2.Response(200, json=CODES), *[httpx2.ConnectError("refused")] * 100)
    with pytest.raises(PairingFailed, match="expired"):
        await script.run()
    assert 900 <= script.now <= 900 + 65 and max(script.slept) == 65


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("ws://127.0.0.1:8080/v1/nodes/connect", "http://127.0.0.1:8080"),
        ("wss://nexus.example/v1/nodes/connect", "https://nexus.example"),
        ("wss://nexus.example/gateway/v1/nodes/connect", "https://nexus.example/gateway"),
        ("wss://nexus.example/elsewhere", "https://nexus.example"),
    ],
)
def test_where_the_api_is(url: str, base: str) -> None:
    """From the address that nodes connect to."""
    assert http_base(url) == base


class Scripted(Pairing):
    """Shows its code and is paired at once."""

    async def run(self) -> Any:
        self._show(Asked(**CODES))
        from desktop.agent.pairing import Paired

        return Paired(access_token=self._identity.node_id, name=self._name, owner="acct_1")


def test_the_command(own_config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shows where to go and what to type, with the key that there is, and says whose the node is."""
    monkeypatch.setattr("desktop.agent.pairing.Pairing", Scripted)
    key = NodeKey.load_or_generate(own_config / "node.key")
    result = CliRunner().invoke(cli.app, ["pair", "--name", "tower"])
    assert result.exit_code == 0, result.output
    assert "https://nexus.example/device" in result.output and "WDJB-MJHT" in result.output
    assert "15 minutes" in result.output and "(tower) belongs to acct_1" in result.output
    assert NodeKey.load(own_config / "node.key").public == key.public


def test_the_command_fails_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line and status 2."""
    result = CliRunner().invoke(cli.app, ["pair", "--gateway", "127.0.0.1:9"])
    assert result.exit_code == 2 and "cannot be reached" in result.output and "Traceback" not in result.output
