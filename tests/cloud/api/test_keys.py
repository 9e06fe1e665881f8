"""API keys through the real gateway: the admin API, scopes, and `nexus keys` beside a running gateway."""

import asyncio
import json
import re
import time

import openai
import pytest
from support.api_errors import check
from typer.testing import CliRunner

from cloud.api.accounts.cli import app as cli
from cloud.api.accounts.keys import Terms
from shared.errors import NexusError

KEYS = "/admin/keys"
GOOD = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
async def admin(gateway):
    """Headers of a key that may manage keys."""
    new = await gateway.app.state.accounts.create(Terms(name="operator", scopes=frozenset({"admin"})))
    return {"authorization": f"Bearer {new.secret}"}


async def test_admin_api(gateway, admin):
    """A key is made, shown once, listed without its secret, works, and is revoked for good."""
    wanted = {
        "name": "alice",
        "scopes": ["inference"],
        "expires_at": int(time.time()) + 1000,
        "requests_per_minute": 60,
        "tokens_per_minute": 1000,
        "concurrent_streams": 2,
        "monthly_budget": "12.5",
        "privacy": "trusted",
    }
    made = await gateway.post(wanted, KEYS, headers=admin)
    assert made.status_code == 201 and made.headers["cache-control"] == "no-store"
    secret = made.json()["key"]
    assert re.fullmatch(r"nx_[\w-]{43}", secret)
    listing = await gateway.http.get(KEYS, headers=admin)
    assert secret not in listing.text
    keys = {key["name"]: key for key in listing.json()["data"]}
    assert set(keys) == {"settings", "operator", "alice"} and keys["settings"]["in_settings"]
    assert keys["alice"].items() >= {**wanted, "state": "active", "spent_this_month": "0"}.items()
    assert secret.startswith(keys["alice"]["start"])

    client = gateway.client.with_options(api_key=secret)
    assert (await client.chat.completions.create(**GOOD)).choices[0].message.content == "Hello"
    ended = await gateway.http.delete(f"{KEYS}/{keys['alice']['id']}", headers=admin)
    assert ended.status_code == 200 and ended.json()["state"] == "revoked"
    with pytest.raises(openai.AuthenticationError, match="revoked"):
        await client.chat.completions.create(**GOOD)
    again = await gateway.http.delete(f"{KEYS}/{keys['alice']['id']}", headers=admin)
    assert again.json() == ended.json()


WRONG = [
    ({"name": None}, "name"),
    ({"name": ""}, "name"),
    ({"name": "x" * 101}, "name"),
    ({"name": "\x1b[2J"}, "name"),
    ({"scopes": []}, "scopes"),
    ({"scopes": ["root"]}, "scopes"),
    ({"scopes": "admin"}, "scopes"),
    ({"requests_per_minute": 0}, "requests_per_minute"),
    ({"tokens_per_minute": 2**70}, "tokens_per_minute"),
    ({"concurrent_streams": 1.5}, "concurrent_streams"),
    ({"concurrent_streams": True}, "concurrent_streams"),
    ({"monthly_budget": 5}, "monthly_budget"),
    ({"monthly_budget": "-5"}, "monthly_budget"),
    ({"monthly_budget": "0.0000000001"}, "monthly_budget"),
    ({"privacy": "none"}, "privacy"),
    ({"expires_at": 5}, "expires_at"),
    ({"id": "key_mine"}, "id"),
]


async def test_wrong_terms_are_named(gateway, admin):
    """400 with the field, and no key is made."""
    for change, param in WRONG:
        check(await gateway.post({"name": "a"} | change, KEYS, headers=admin), 400, "invalid_request", param)
    assert len(gateway.app.state.accounts.ring) == 2


async def test_strange_names_are_not_repeated_at_length(gateway, admin):
    """Of a field that nobody knows, as much is told as a person needs, and nothing that a terminal obeys."""
    error = (await gateway.post({"name": "a", "\x1b[2J" + "x" * 10_000: 1}, KEYS, headers=admin)).json()["error"]
    assert "xxx" in error["param"] and error["param"].isprintable() and len(str(error)) < 500


async def test_bodies_that_are_no_objects(gateway, admin):
    """400 too."""
    for body in (b"", b"{", b"[]", b'"a"', b"\xff", b"[" * 100_000, b'{"a":' * 100_000):
        check(await gateway.post(body, KEYS, headers=admin), 400, "invalid_request")


async def test_scopes(gateway, admin):
    """Each address needs its scope; without it the answer is 403, without a key 401; other addresses are not told."""
    accounts = gateway.app.state.accounts
    calls = {
        "inference": lambda headers: gateway.post(GOOD, headers=headers),
        "models": lambda headers: gateway.http.get("/v1/models", headers=headers),
        "admin": lambda headers: gateway.http.get(KEYS, headers=headers),
    }
    for scope in calls:
        new = await accounts.create(Terms(name=scope, scopes=frozenset({scope})))
        headers = {"authorization": f"Bearer {new.secret}"}
        for needed, call in calls.items():
            response = await call(headers)
            if needed == scope:
                assert response.status_code == 200
            else:
                assert f"`{needed}`" in check(response, 403, "permission_denied")
    check(await gateway.http.get(KEYS), 403, "permission_denied")
    check(await gateway.http.get(KEYS, headers={"authorization": ""}), 401, "invalid_api_key")
    check(await gateway.http.delete(f"{KEYS}/x", headers={"authorization": "Bearer x"}), 401, "invalid_api_key")
    check(await gateway.http.delete(f"{KEYS}/key_none", headers=admin), 404, "not_found")
    fixed = next(key for key in accounts.ring.known() if key.in_settings)
    check(await gateway.http.delete(f"{KEYS}/{fixed.id}", headers=admin), 400, "invalid_request")
    check(await gateway.http.get("/admin/other", headers=admin), 404, "not_found")
    check(await gateway.http.put(KEYS, headers=admin), 405, "method_not_allowed")


async def test_two_keys_at_once_are_none(gateway):
    """Which of two would count is not guessed."""
    headers = [("authorization", gateway.key), ("authorization", "Bearer other-key-1")]
    check(await gateway.http.get("/v1/models", headers=headers), 401, "invalid_api_key")


class TestDatabase:
    """A gateway with a database, and `nexus keys` beside it."""

    @pytest.fixture
    def extra(self, tmp_path):
        return {"database": str(tmp_path / "gateway.db")}

    @pytest.fixture
    def keys(self, extra):
        """Run `nexus keys` on the gateway's database; gives what it prints."""

        def run(*arguments, fails=None):
            result = CliRunner().invoke(cli, [*arguments, "--database", extra["database"]])
            if fails:
                assert isinstance(result.exception, NexusError) and fails in result.exception.message
            else:
                assert result.exit_code == 0, result.output
            return result.output

        return run

    async def test_a_running_gateway_hears_of_changes(self, gateway, keys):
        """A key from the command line works at once; a revoked one is refused within a second or so."""
        secret = (await asyncio.to_thread(keys, "create", "ci", "--quiet")).strip()
        headers = {"authorization": f"Bearer {secret}"}
        assert (await gateway.http.get("/v1/models", headers=headers)).status_code == 200
        [key] = json.loads(await asyncio.to_thread(keys, "list", "--json"))
        assert "revoked" in await asyncio.to_thread(keys, "revoke", key["id"])
        status = 200
        for _ in range(200):
            if (status := (await gateway.http.get("/v1/models", headers=headers)).status_code) != 200:
                break
            await asyncio.sleep(0.05)
        assert status == 401

    def test_create_and_list(self, keys):
        """Everything that was set is shown, the secret is not; an empty list says what to do."""
        assert "nexus keys create NAME" in keys("list")
        output = keys("create", "alice", "--budget", "12.50", "--expires", "30d", "--requests-per-minute", "5")
        secret = re.search(r"nx_[\w-]{43}", output)[0]
        made = json.loads(keys("create", "bob", "--scope", "admin", "--scope", "models", "--privacy", "any", "--json"))
        assert made["key"].startswith("nx_") and made["scopes"] == ["models", "admin"]
        table = keys("list")
        assert secret not in table and made["key"] not in table
        assert re.search(r"alice +active +inference,models +requests/min 5, until \d{4}-.* \$0 of \$12\.5\n", table)
        assert re.search(r"bob +active +models,admin +privacy any +\$0\n", table)

    def test_errors_in_words(self, keys):
        """Wrong values and unknown ids."""
        keys("create", "a", "--budget", "5 dollars", fails="amount of dollars")
        keys("create", "a", "--scope", "root", fails="scopes")
        keys("create", "a", "--expires", "soon", fails="30d, 12h")
        keys("create", "a", "--expires", "2001-01-01", fails="past")
        keys("revoke", "key_none", fails="nexus keys list")

    def test_no_database_to_keep_keys_in(self, monkeypatch, tmp_path):
        """With `:memory:` there is nothing to write to, and that is said."""
        monkeypatch.setenv("NEXUS_GATEWAY_API_KEYS", "some-key-123")
        monkeypatch.setenv("NEXUS_RUNTIME_DIR", str(tmp_path / "run"))
        monkeypatch.setenv("NEXUS_CONFIG_DIR", str(tmp_path))
        result = CliRunner().invoke(cli, ["create", "a"])
        assert ":memory:" in result.exception.message
