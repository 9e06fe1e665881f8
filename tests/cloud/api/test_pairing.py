"""Pairing through the real gateway: the agent's own client, the owner's requests, and the node's WebSocket."""

import asyncio
import base64
import re
from urllib.parse import urlencode

import pytest
from support.api_errors import check
from support.identity import PASSWORD
from support.serving import serving
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from cloud.api.app import create_app
from cloud.api.audit.entry import Actor
from cloud.api.coordinator import Coordinator
from cloud.api.routes.device import GRANT_TYPE
from cloud.api.routes.device_page import HTML
from cloud.api.server import uvicorn_config
from cloud.api.settings import GatewaySettings, VerifierSettings
from desktop.agent.identity import load_identity
from desktop.agent.pairing import Pairing, PairingFailed, open_http
from shared.keys import NodeKey, node_id, pairing_payload, proof_payload
from shared.wire.messages import Hello, ModelOffer, Proof, Refuse, Welcome
from shared.wire.session import NodeSession

KEY = "test-key-0123456789"
BY = Actor("cli:tester")
CHEAP = {"argon2_memory_kib": 7168, "argon2_passes": 1, "argon2_lanes": 1, "pairing_interval_s": 1}
VERIFIERS = [VerifierSettings(url="http://127.0.0.1:9", draft_ports=["ipc:///nowhere"])]
PATIENCE_S = 20.0
"""Only bounds a hang."""


class Node:
    """A node's end of the WebSocket, spoken by hand; `word` is what the gateway says after the proof."""

    def __init__(self, socket, key):
        self.socket, self.key, self.session = socket, key, NodeSession()

    async def shake_hands(self):
        offer = ModelOffer(name="small", fingerprint="f" * 64, vocabulary=100)
        hello = Hello(versions=(1,), key=self.key.public, engine="test", models=(offer,), streams=1)
        await self.socket.send(self.session.send(hello))
        challenge = await self.read()
        payload = proof_payload(challenge.nonce, challenge.cloud, self.session.hello_bytes)
        await self.socket.send(self.session.send(Proof(signature=self.key.sign(payload))))
        return await self.read()

    async def read(self):
        async with asyncio.timeout(PATIENCE_S):
            return self.session.receive(await self.socket.recv())

    async def end(self):
        """The refusal's code and words, and the close code."""
        word = await self.read()
        while not isinstance(word, Refuse):
            word = await self.read()
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(ConnectionClosed):
                await self.socket.recv()
        return word.code, word.message, self.socket.close_code


class Cloud:
    """A gateway with the real coordinator, on a real socket; no verifier is attached."""

    def __init__(self, app, url, http):
        self.app, self.url, self.http = app, url, http
        self.identity = app.state.identity

    async def session(self, email="alice@example.com", *roles):
        await self.identity.people.create(email, email, roles or ["owner"], PASSWORD, BY)
        _, new = await self.identity.people.sign_in(email, PASSWORD, address="::1", client="test")
        return {"authorization": f"Bearer {new.token}"}

    async def form(self, path, **fields):
        given = {"content-type": "application/x-www-form-urlencoded"}
        return await self.http.post(path, content=urlencode(fields), headers=given)

    def connect(self):
        return connect(self.url.replace("http", "ws") + "/v1/nodes/connect", compression=None, proxy=None)


@pytest.fixture
def settings():
    return {"market": {"enabled": True}, "identity": CHEAP}


@pytest.fixture
async def cloud(settings, tmp_path):
    given = GatewaySettings(api_keys=[KEY], port=0, verifiers=VERIFIERS, **settings)
    coordinator = Coordinator(given.to_draft_ports(), nodes=given.to_nodes())
    app = create_app(given, coordinator)
    async with serving(uvicorn_config(app, given)) as url, open_http(url) as http:
        yield Cloud(app, url, http)


async def paired(cloud, identity, headers, decision="approve"):
    """Pair a node with the agent's own client while its owner approves it; gives what the agent has to show for it."""
    asked = asyncio.get_running_loop().create_future()

    async def wait(seconds):
        waited.append(seconds)
        await decided

    waited = []
    pairing = Pairing(cloud.http, identity, "tower", asked.set_result, sleep=wait)

    async def decide():
        shown = await asked
        seen = await cloud.http.get(f"/v1/owner/pairings/{shown.user_code.lower()}", headers=headers)
        assert seen.json()["name"] == "tower" and seen.json()["node"] == identity.node_id
        answer = await cloud.http.post(f"/v1/device/{decision}", json={"user_code": shown.user_code}, headers=headers)
        assert answer.status_code == 200, answer.text
        return shown

    decided = asyncio.create_task(decide())
    return await pairing.run(), await decided, waited


async def test_from_the_first_refusal_to_revocation(cloud, tmp_path):
    """A node that nobody knows is told to pair; paired by `nexus agent pair` it connects with the same key file;
    revoked it is turned away at once, and from then on, in words.
    """
    identity = load_identity(tmp_path / "node.key")
    async with cloud.connect() as socket:
        code, words, close_code = await refused(Node(socket, identity.key))
        assert code == "node_unpaired" and close_code == 4006 and "nexus agent pair" in words
    owner = await cloud.session()
    result, asked, waited = await paired(cloud, load_identity(tmp_path / "node.key"), owner)
    assert result.access_token == identity.node_id and result.name == "tower" and waited == [1.0]
    assert asked.verification_uri == f"{cloud.url}/device" and asked.user_code in asked.verification_uri_complete
    assert cloud.identity.nodes.owner(identity.node_id) == result.owner

    async with cloud.connect() as socket:
        node = Node(socket, identity.key)
        assert isinstance(await node.shake_hands(), Welcome)
        renamed = await cloud.http.patch(f"/v1/owner/nodes/{identity.node_id}", json={"name": "attic"}, headers=owner)
        assert renamed.json()["name"] == "attic"
        began = asyncio.get_running_loop().time()
        gone = await cloud.http.delete(f"/v1/owner/nodes/{identity.node_id}", headers=owner)
        assert gone.json()["state"] == "revoked"
        code, words, close_code = await node.end()
        assert code == "node_revoked" and close_code == 4007 and "revoked" in words
        assert asyncio.get_running_loop().time() - began < 1
    async with cloud.connect() as socket:
        assert (await refused(Node(socket, identity.key)))[0] == "node_revoked"
    [listed] = (await cloud.http.get("/v1/owner/nodes", headers=owner)).json()["data"]
    assert (listed["name"], listed["state"]) == ("attic", "revoked")
    check(await cloud.http.delete(f"/v1/owner/nodes/{identity.node_id}", headers=owner), 409, "conflict")
    with pytest.raises(PairingFailed, match="revoked"):
        await paired(cloud, identity, owner)


async def refused(node):
    """Shake hands, be refused."""
    word = await node.shake_hands()
    assert isinstance(word, Refuse), word
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(ConnectionClosed):
            await node.socket.recv()
    return word.code, word.message, node.socket.close_code


async def test_a_denied_node(cloud, tmp_path):
    """Its owner's agent says so."""
    with pytest.raises(PairingFailed, match="denied"):
        await paired(cloud, load_identity(tmp_path / "node.key"), await cloud.session(), "deny")


async def test_an_operator_revokes_any_node(cloud, tmp_path):
    """And a disabled account's nodes are turned away while they are connected."""
    operator, owner = await cloud.session("op@example.com", "operator"), await cloud.session()
    identities = [load_identity(tmp_path / f"{name}.key") for name in "ab"]
    for identity in identities:
        await paired(cloud, identity, owner)
    async with cloud.connect() as one, cloud.connect() as two:
        nodes = [Node(socket, identity.key) for socket, identity in zip((one, two), identities, strict=True)]
        for node in nodes:
            assert isinstance(await node.shake_hands(), Welcome)
        found = (await cloud.http.get("/admin/nodes?limit=1", headers=operator)).json()
        rest = (await cloud.http.get(f"/admin/nodes?after={found['last']}", headers=operator)).json()
        assert {each["id"] for each in found["data"] + rest["data"]} == {each.node_id for each in identities}
        gone = await cloud.http.delete(f"/admin/nodes/{identities[0].node_id}", headers=operator)
        assert gone.status_code == 200 and (await nodes[0].end())[0] == "node_revoked"
        account = (await cloud.http.get("/v1/account", headers=owner)).json()["id"]
        only = (await cloud.http.get(f"/admin/nodes?owner={account}", headers=operator)).json()["data"]
        assert {each["state"] for each in only} == {"paired", "revoked"}
        await cloud.http.patch(f"/admin/accounts/{account}", json={"disabled": True}, headers=operator)
        assert (await nodes[1].end())[0] == "node_revoked"


class TestMarketOff:
    """A gateway as it is by default."""

    @pytest.fixture
    def settings(self):
        return {"identity": CHEAP}

    async def test_nodes_connect_unpaired(self, cloud, tmp_path):
        """As ever; one that was paired and revoked does not."""
        identity = load_identity(tmp_path / "node.key")
        async with cloud.connect() as socket:
            assert isinstance(await Node(socket, identity.key).shake_hands(), Welcome)
        owner = await cloud.session()
        await paired(cloud, identity, owner)
        await cloud.http.delete(f"/v1/owner/nodes/{identity.node_id}", headers=owner)
        async with cloud.connect() as socket:
            assert (await refused(Node(socket, identity.key)))[0] == "node_revoked"


class TestTwoGateways:
    """On one database."""

    @pytest.fixture
    def settings(self, database_url):
        return {"market": {"enabled": True}, "identity": CHEAP, "database": database_url}

    async def test_the_other_one_hears_of_it(self, cloud, settings, tmp_path):
        """A node that was paired there connects here at once; revoked there it is turned away here within a second."""
        given = GatewaySettings(api_keys=[KEY], port=0, verifiers=VERIFIERS, **settings)
        other = create_app(given, Coordinator(given.to_draft_ports(), nodes=given.to_nodes()))
        async with serving(uvicorn_config(other, given)) as url, open_http(url) as http:
            there = Cloud(other, url, http)
            owner = await there.session()
            identity = load_identity(tmp_path / "node.key")
            await paired(there, identity, owner)
            async with cloud.connect() as socket:
                node = Node(socket, identity.key)
                assert isinstance(await node.shake_hands(), Welcome)
                gone = await http.delete(f"/v1/owner/nodes/{identity.node_id}", headers=owner)
                assert gone.status_code == 200
                assert (await node.end())[0] == "node_revoked"


async def test_the_forms_of_the_rfc(cloud):
    """Questions are forms and errors have OAuth's shape; what is wrong is named."""

    async def wrong(code, path, **fields):
        answer = await cloud.form(path, **fields)
        assert answer.status_code == 400 and answer.headers["cache-control"] == "no-store"
        assert set(answer.json()) == {"error", "error_description"} and answer.json()["error"] == code
        return answer.json()["error_description"]

    key = NodeKey.generate()
    assert "client_id" in await wrong("invalid_request", "/v1/device/code", public_key=key.public.hex())
    assert "public_key" in await wrong("invalid_request", "/v1/device/code", client_id="x")
    assert "hexadecimal" in await wrong("invalid_request", "/v1/device/code", client_id="x", public_key="zz")
    given = {"client_id": "x", "grant_type": GRANT_TYPE, "device_code": "unknown", "signature": "AAAA"}
    await wrong("invalid_grant", "/v1/device/token", **given)
    await wrong("unsupported_grant_type", "/v1/device/token", **given | {"grant_type": "password"})
    await wrong("invalid_request", "/v1/device/token", **given | {"signature": "§"})
    for body in (
        b"\xff",
        b"client_id=a&client_id=b",
        b"&".join(b"a%d=1" % n for n in range(50)),
        b"client_id=%ff",
        b"{}",
    ):
        answer = await cloud.http.post("/v1/device/code", content=body)
        assert answer.status_code == 400 and answer.json()["error"] == "invalid_request"

    asked = (await cloud.form("/v1/device/code", client_id="x", public_key=key.public.hex(), name="t")).json()
    assert set(asked) == {
        "device_code",
        "user_code",
        "verification_uri",
        "verification_uri_complete",
        "expires_in",
        "interval",
    }
    signature = key.sign(pairing_payload(asked["device_code"], asked["user_code"], asked["verification_uri"]))
    given |= {"device_code": asked["device_code"], "signature": base64.urlsafe_b64encode(signature).decode()}
    await wrong("authorization_pending", "/v1/device/token", **given)
    owner = await cloud.session()
    approved = await cloud.http.post("/v1/device/approve", json={"user_code": asked["user_code"]}, headers=owner)
    assert approved.json()["state"] == "approved"
    taken = await cloud.form("/v1/device/token", **given)
    assert taken.json() == {
        "access_token": node_id(key.public),
        "token_type": "node_key",
        "name": "t",
        "owner": (await cloud.http.get("/v1/account", headers=owner)).json()["id"],
    }
    developer = await cloud.session("d@example.com", "developer")
    for path in ("approve", "deny"):
        answer = await cloud.http.post(f"/v1/device/{path}", json={"user_code": "BBBB-BBBB"}, headers=developer)
        check(answer, 403, "permission_denied")
        answer = await cloud.http.post(f"/v1/device/{path}", json={"user_code": "BBBB-BBBB"}, headers=owner)
        check(answer, 404, "not_found", "user_code")


class TestPublicUrl:
    """A gateway that knows where people reach it."""

    @pytest.fixture
    def settings(self):
        return {"identity": CHEAP | {"public_url": "https://nexus.example/gateway/"}}

    async def test_people_are_sent_there(self, cloud, tmp_path):
        """Whatever the node called the gateway, and the node signs that."""
        _, asked, _ = await paired(cloud, load_identity(tmp_path / "node.key"), await cloud.session())
        assert asked.verification_uri == "https://nexus.example/gateway/device"


async def test_the_page(cloud):
    """Needs no key, may be put into no frame, loads nothing from elsewhere, and asks only what is documented."""
    answer = await cloud.http.get("/device?user_code=%3Cscript%3E")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
    assert answer.text == HTML and "<script>" in HTML and "http:" not in HTML and "https:" not in HTML
    assert "innerHTML" not in HTML
    called = re.findall(r'"(GET|POST)", "(v1/[\w/-]+)"', HTML)
    assert {path for _, path in called} == {
        "v1/account/sign-in",
        "v1/account/sign-out",
        "v1/owner/pairings/",
        "v1/device/",
    }
    there = {(route.path, method) for route in cloud.app.routes for method in getattr(route, "methods", None) or ()}
    for method, path in called:
        assert any(known.startswith(f"/{path}") and method == allowed for known, allowed in there), path


async def test_a_strange_host_makes_no_address(cloud):
    """What the caller's `Host` header says is told to nobody but the caller, and only if it can be an address."""
    form = "client_id=x&public_key=" + "ab" * 32
    answer = await cloud.http.post("/v1/device/code", content=form, headers={"host": "x" * 400})
    assert answer.status_code == 400 and answer.json()["error"] == "invalid_request"
