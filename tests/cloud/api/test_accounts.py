"""People through the real gateway: signing in, what each role may, operators, and `nexus accounts` beside it."""

import asyncio
import json
import re

import pytest
from support.api_errors import check
from support.identity import PASSWORD
from typer.testing import CliRunner

from cloud.api.accounts.cli import app as keys_cli
from cloud.api.accounts.keys import Terms
from cloud.api.audit.entry import Actor
from cloud.api.identity.cli import app as cli
from cloud.api.openapi.operations import OPERATIONS
from shared.errors import NexusError

ACCOUNT = "/v1/account"
GOOD = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
BY = Actor("cli:tester")


@pytest.fixture
def extra():
    """Anybody may sign up; hashing takes little time."""
    return {"identity": {"sign_up": True, "argon2_memory_kib": 7168, "argon2_passes": 1, "argon2_lanes": 1}}


def bearer(token):
    return {"authorization": f"Bearer {token}"}


@pytest.fixture
def sign_up(gateway):
    """A new account; gives the headers of its session."""

    async def sign_up(email="alice@example.com", *roles):
        body = {"email": email, "password": PASSWORD, "roles": list(roles or ("developer",))}
        answer = await gateway.post(body, f"{ACCOUNT}/sign-up", headers={"authorization": ""})
        assert answer.status_code == 201, answer.text
        return bearer(answer.json()["token"])

    return sign_up


@pytest.fixture
async def operator(gateway):
    """Headers of an operator's session."""
    people = gateway.app.state.identity.people
    await people.create("op@example.com", "Op", ["operator"], PASSWORD, BY)
    _, new = await people.sign_in("op@example.com", PASSWORD, address="::1", client="test")
    return bearer(new.token)


async def test_a_persons_day(gateway, sign_up):
    """Signs up, looks at the account, signs in again, ends that session, changes the password, signs out."""
    me = await sign_up("Alice@Example.com", "developer", "owner")
    account = (await gateway.http.get(ACCOUNT, headers=me)).json()
    assert account["email"] == "alice@example.com" and account["roles"] == ["developer", "owner"]
    given = {"email": "alice@example.com", "password": PASSWORD}
    second = await gateway.post(given, f"{ACCOUNT}/sign-in", headers={"authorization": "", "user-agent": "phone"})
    assert second.status_code == 200 and second.headers["cache-control"] == "no-store"
    token, session = second.json()["token"], second.json()["session"]
    assert re.fullmatch(r"nxs_[\w-]{43}", token) and session["current"] and session["client"] == "phone"
    listed = (await gateway.http.get(f"{ACCOUNT}/sessions", headers=me)).json()["data"]
    assert [each["current"] for each in listed] in ([False, True], [True, False]) and token not in str(listed)
    assert (await gateway.http.delete(f"{ACCOUNT}/sessions/{session['id']}", headers=me)).json()["ended_at"]
    check(await gateway.http.get(ACCOUNT, headers=bearer(token)), 401, "invalid_session")
    check(await gateway.http.delete(f"{ACCOUNT}/sessions/sess_none", headers=me), 404, "not_found")
    changed = {"current": PASSWORD, "password": "another password"}
    assert (await gateway.post(changed, f"{ACCOUNT}/password", headers=me)).status_code == 200
    check(await gateway.post(given, f"{ACCOUNT}/sign-in"), 401, "invalid_credentials")
    assert (await gateway.post({}, f"{ACCOUNT}/sign-out", headers=me)).status_code == 200
    assert "ended" in check(await gateway.http.get(ACCOUNT, headers=me), 401, "invalid_session")


WRONG = [
    ("sign-up", {"email": "no address"}, "email"),
    ("sign-up", {"password": "short"}, "password"),
    ("sign-up", {"roles": []}, "roles"),
    ("sign-up", {"roles": ["king"]}, "roles"),
    ("sign-up", {"roles": ["operator"]}, "roles"),
    ("sign-up", {"name": "\x1b[2J"}, "name"),
    ("sign-up", {"id": "acct_mine"}, "id"),
    ("sign-in", {"email": 5}, "email"),
    ("sign-in", {"password": None}, "password"),
]


@pytest.mark.parametrize(("where", "change", "param"), WRONG)
async def test_wrong_fields_are_named(gateway, where, change, param):
    """400, and no account is made."""
    body = {"email": "a@example.com", "password": PASSWORD} | change
    answer = await gateway.post(body, f"{ACCOUNT}/{where}", headers={"authorization": ""})
    check(answer, 400, "invalid_request", param)
    assert not await gateway.app.state.identity.people.list(10)


async def test_an_address_signs_up_once(gateway, sign_up):
    """409."""
    await sign_up()
    body = {"email": "ALICE@example.com", "password": PASSWORD}
    check(await gateway.post(body, f"{ACCOUNT}/sign-up"), 409, "conflict", "email")


class TestClosed:
    """A gateway as it is by default."""

    @pytest.fixture
    def extra(self):
        return {}

    async def test_nobody_signs_up(self, gateway):
        """403 with what to do instead."""
        body = {"email": "a@example.com", "password": PASSWORD}
        answer = await gateway.post(body, f"{ACCOUNT}/sign-up", headers={"authorization": ""})
        assert "nexus accounts create" in check(answer, 403, "permission_denied")


async def test_guessing_ends(gateway, sign_up):
    """429 with the time to wait, also for the right password."""
    await sign_up()
    for number in range(10):
        body = {"email": "alice@example.com", "password": f"wrong password {number}"}
        check(await gateway.post(body, f"{ACCOUNT}/sign-in"), 401, "invalid_credentials")
    answer = await gateway.post({"email": "alice@example.com", "password": PASSWORD}, f"{ACCOUNT}/sign-in")
    check(answer, 429, "rate_limit_exceeded")
    assert 80 <= int(answer.headers["retry-after"]) <= 90


async def test_developers_manage_their_own_keys(gateway, sign_up):
    """Made, used, listed, revoked; nobody else's, and never with the scope admin."""
    alice, bob, owner = [
        await sign_up(f"{n}@example.com", role) for n, role in (("a", "developer"), ("b", "developer"), ("c", "owner"))
    ]
    made = await gateway.post({"name": "laptop", "monthly_budget": "5"}, f"{ACCOUNT}/keys", headers=alice)
    assert made.status_code == 201
    secret, key = made.json()["key"], made.json()
    assert key["account"] == (await gateway.http.get(ACCOUNT, headers=alice)).json()["id"]
    assert (await gateway.http.get("/v1/models", headers=bearer(secret))).status_code == 200
    [listed] = (await gateway.http.get(f"{ACCOUNT}/keys", headers=alice)).json()["data"]
    assert listed["name"] == "laptop" and secret not in str(listed)
    assert (await gateway.http.get(f"{ACCOUNT}/keys", headers=bob)).json()["data"] == []
    check(await gateway.http.delete(f"{ACCOUNT}/keys/{key['id']}", headers=bob), 404, "not_found")
    check(await gateway.http.get(f"{ACCOUNT}/keys", headers=owner), 403, "permission_denied")
    fixed = next(each for each in gateway.app.state.accounts.ring.known() if each.in_settings)
    check(await gateway.http.delete(f"{ACCOUNT}/keys/{fixed.id}", headers=alice), 404, "not_found")
    wrong = {"name": "x", "scopes": ["admin"]}
    check(await gateway.post(wrong, f"{ACCOUNT}/keys", headers=alice), 400, "invalid_request", "scopes")
    check(
        await gateway.post({"name": "x", "account": "acct_x"}, f"{ACCOUNT}/keys", headers=alice),
        400,
        "invalid_request",
        "account",
    )
    assert (await gateway.http.delete(f"{ACCOUNT}/keys/{key['id']}", headers=alice)).json()["state"] == "revoked"
    check(await gateway.http.get("/v1/models", headers=bearer(secret)), 401, "invalid_api_key")


async def test_an_account_has_so_many_keys(gateway, sign_up, monkeypatch):
    """Then 409, until one is revoked."""
    monkeypatch.setattr("cloud.api.accounts.accounts.KEYS_OF_ACCOUNT", 2)
    me = await sign_up()
    made = [await gateway.post({"name": "x"}, f"{ACCOUNT}/keys", headers=me) for _ in range(3)]
    assert [answer.status_code for answer in made] == [201, 201, 409]
    await gateway.http.delete(f"{ACCOUNT}/keys/{made[0].json()['id']}", headers=me)
    assert (await gateway.post({"name": "x"}, f"{ACCOUNT}/keys", headers=me)).status_code == 201


async def test_which_token_opens_what(gateway, sign_up, operator):
    """Sessions generate nothing, API keys are nobody's session, and each role has its own addresses."""
    developer, owner = await sign_up("d@example.com", "developer"), await sign_up("o@example.com", "owner")
    check(await gateway.post(GOOD, headers=developer), 401, "invalid_api_key")
    check(await gateway.http.get("/v1/models", headers=developer), 401, "invalid_api_key")
    for path in (ACCOUNT, "/v1/owner/nodes", f"{ACCOUNT}/keys"):
        check(await gateway.http.get(path), 401, "invalid_session")
        check(await gateway.http.get(path, headers={"authorization": ""}), 401, "invalid_api_key")
    check(await gateway.http.get("/v1/owner/nodes", headers=developer), 403, "permission_denied")
    assert (await gateway.http.get("/v1/owner/nodes", headers=owner)).status_code == 200
    for path in ("/admin/accounts", "/admin/keys", "/admin/audit", "/admin/nodes"):
        for headers in (developer, owner, {}):
            check(await gateway.http.get(path, headers=headers), 403, "permission_denied")
        assert (await gateway.http.get(path, headers=operator)).status_code == 200
    check(await gateway.http.get(ACCOUNT, headers=bearer("nxs_" + "x" * 43)), 401, "invalid_session")
    check(await gateway.http.get(ACCOUNT, headers={"authorization": b"Bearer nxs_\xff"}), 401, "invalid_session")


def test_every_address_of_a_person_needs_a_session():
    """By the document: what is below these addresses is free, or says so."""
    for each in OPERATIONS:
        if re.match(r"/v1/(account|owner|developer|usage|device)\b", each.path):
            assert each.by == "session" or each.key == "free", each.name
        if each.path.startswith("/admin"):
            assert each.by == "either", each.name


async def test_operators(gateway, sign_up, operator):
    """Make accounts, look at them, change roles, disable: what ends with it ends at once."""
    alice = await sign_up("alice@example.com", "developer")
    key = (await gateway.post({"name": "x"}, f"{ACCOUNT}/keys", headers=alice)).json()["key"]
    made = await gateway.post({"email": "bob@example.com", "roles": ["owner"]}, "/admin/accounts", headers=operator)
    assert made.status_code == 201 and made.json()["name"] == "bob@example.com"
    emails = [each["email"] for each in (await gateway.http.get("/admin/accounts", headers=operator)).json()["data"]]
    assert sorted(emails) == ["alice@example.com", "bob@example.com", "op@example.com"]
    found = (await gateway.http.get("/admin/accounts/Alice@example.com", headers=operator)).json()
    place = f"/admin/accounts/{found['id']}"
    assert (await gateway.http.get(place, headers=operator)).json() == found

    async def change(body, where=place):
        return await gateway.http.patch(where, json=body, headers=operator)

    assert (await change({"roles": ["developer", "owner"]})).json()["roles"] == ["developer", "owner"]
    assert (await gateway.http.get("/v1/owner/nodes", headers=alice)).status_code == 200
    assert (await change({"disabled": True})).json()["state"] == "disabled"
    assert (await change({"disabled": True})).json()["state"] == "disabled"
    check(await gateway.http.get(ACCOUNT, headers=alice), 401, "invalid_session")
    check(await gateway.http.get("/v1/models", headers=bearer(key)), 401, "invalid_api_key")
    given = {"email": "alice@example.com", "password": PASSWORD}
    check(await gateway.post(given, f"{ACCOUNT}/sign-in"), 401, "invalid_credentials")
    assert (await change({"disabled": False})).json()["state"] == "active"
    check(await gateway.http.get("/v1/models", headers=bearer(key)), 401, "invalid_api_key")
    check(await change({"roles": ["developer"]}, "/admin/accounts/acct_none"), 404, "not_found")
    own = (await gateway.http.get(ACCOUNT, headers=operator)).json()["id"]
    for body in ({"disabled": True}, {"roles": ["owner"]}):
        check(await change(body, f"/admin/accounts/{own}"), 409, "conflict")


async def test_operators_give_keys_to_accounts(gateway, sign_up, operator):
    """The account pays for what such a key does; it has no scope admin, and nobody has it who may have none."""
    alice = await sign_up("alice@example.com", "developer")
    me = (await gateway.http.get(ACCOUNT, headers=alice)).json()["id"]
    made = await gateway.post({"name": "x", "account": me}, "/admin/keys", headers=operator)
    assert made.status_code == 201 and made.json()["account"] == me
    assert [each["id"] for each in (await gateway.http.get(f"{ACCOUNT}/keys", headers=alice)).json()["data"]] == [
        made.json()["id"]
    ]
    body = {"name": "x", "account": me, "scopes": ["admin"]}
    check(await gateway.post(body, "/admin/keys", headers=operator), 400, "invalid_request", "scopes")
    check(await gateway.post({"name": "x", "account": "acct_none"}, "/admin/keys", headers=operator), 404, "not_found")
    await sign_up("owner@example.com", "owner")
    owner = (await gateway.http.get("/admin/accounts/owner@example.com", headers=operator)).json()["id"]
    check(
        await gateway.post({"name": "x", "account": owner}, "/admin/keys", headers=operator), 403, "permission_denied"
    )


async def test_the_audit_log(gateway, sign_up, operator):
    """Tells who did what, in pages, newest first; also what an API key with the scope admin did."""
    new = await gateway.app.state.accounts.create(Terms(name="robot", scopes=frozenset({"admin"})), by=BY)
    robot = bearer(new.secret)
    await sign_up("alice@example.com")
    made = await gateway.post({"name": "made by the robot"}, "/admin/keys", headers=robot)
    await gateway.http.delete(f"/admin/keys/{made.json()['id']}", headers=operator)
    entries, before = [], ""
    while True:
        page = (await gateway.http.get(f"/admin/audit?limit=3{before}", headers=operator)).json()
        entries += page["data"]
        if not page["has_more"]:
            break
        before = f"&before={page['last']}"
    assert [each["seq"] for each in entries] == list(range(len(entries), 0, -1))
    about = {each["action"]: each for each in entries if each["subject"] == made.json()["id"]}
    assert about["key.created"]["actor"] == new.key.id and about["key.created"]["detail"]["name"] == "made by the robot"
    operators = (await gateway.http.get(ACCOUNT, headers=operator)).json()["id"]
    assert about["key.revoked"]["actor"] == operators
    whole = (await gateway.http.get("/admin/audit", headers=robot)).text
    assert PASSWORD not in whole and "nxs_" not in whole and "argon2" not in whole and made.json()["key"] not in whole
    only = (await gateway.http.get(f"/admin/audit?subject={new.key.id}", headers=robot)).json()["data"]
    assert [each["action"] for each in only] == ["key.created"]
    for query in ("limit=0", "limit=x", "limit=1001", "before=0", "before=-1", "limit=²"):
        check(
            await gateway.http.get(f"/admin/audit?{query}", headers=robot),
            400,
            "invalid_request",
            query[: query.index("=")],
        )


class TestDatabase:
    """`nexus accounts` and a gateway on the same database."""

    @pytest.fixture
    def extra(self, tmp_path):
        return {"database": str(tmp_path / "gateway.db")}

    @pytest.fixture
    def run(self, extra):
        """Run `nexus accounts` on it; gives what it prints."""

        def run(*arguments, fails=None, stdin=None, command=cli):
            result = CliRunner().invoke(command, [*arguments, "--database", extra["database"]], input=stdin)
            if fails:
                assert isinstance(result.exception, NexusError) and fails in result.exception.message
            else:
                assert result.exit_code == 0, result.output
            return result.output

        return run

    def test_from_the_first_operator_on(self, run):
        """Made, listed, changed, disabled and enabled, each with its entry in the audit log."""
        assert "nexus accounts create" in run("list")
        run("create", "op@example.com", "--role", "operator", stdin=f"{PASSWORD}\n{PASSWORD}\n")
        run("create", "alice@example.com", "--role", "developer", "--role", "owner", "--password-stdin", stdin=PASSWORD)
        made = json.loads(run("create", "bob@example.com", "--role", "owner", "--name", "Bob", "--generate", "--json"))
        assert len(made["password"]) == 24 and made["name"] == "Bob"
        run("role", "alice@example.com", "--add", "operator", "--remove", "owner")
        run("disable", made["id"])
        table = run("list")
        assert re.search(r"alice@example.com +alice@example.com +developer,operator +active", table)
        assert re.search(r"bob@example.com +Bob +owner +disabled", table)
        run("enable", "bob@example.com")
        assert "new password: " in run("password", "bob@example.com", "--generate")
        log = json.loads(run("audit", "--json"))
        assert [each["action"] for each in log] == [
            "account.password_changed",
            "account.enabled",
            "account.disabled",
            "account.roles_changed",
            *["account.created"] * 3,
        ]
        assert all(each["actor"].startswith("cli:") for each in log)
        assert re.search(
            r"account.roles_changed +acct_\w+ +before developer\+owner, after ", run("audit", "--limit", "4")
        )
        assert (
            made["id"] in run("audit", "--subject", made["id"]) and len(run("audit", "--before", "2").splitlines()) == 2
        )

    def test_errors_in_words(self, run):
        """Wrong roles, addresses and passwords, unknown accounts, and an account that would be left without a role."""
        run("create", "alice@example.com", "--role", "king", "--generate", fails="roles")
        run("create", "alice", "--role", "owner", "--generate", fails="e-mail address")
        run("create", "a@example.com", "--role", "owner", "--password-stdin", stdin="short\n", fails="at least 12")
        run("create", "a@example.com", "--role", "owner", "--generate")
        run("create", "A@example.com", "--role", "owner", "--generate", fails="already")
        run("role", "a@example.com", "--remove", "owner", fails="at least one role")
        run("role", "a@example.com", "--add", "king", fails="no role")
        run("disable", "nobody@example.com", fails="no account")
        run("disable", "acct_none", fails="no account")

    def test_keys_of_accounts(self, run):
        """By id or e-mail address; the table says whose each is."""
        run("create", "alice@example.com", "--role", "developer", "--generate")
        [alice] = json.loads(run("list", "--json"))
        for whose in ("Alice@example.com", alice["id"]):
            run("create", "laptop", "--account", whose, "--quiet", command=keys_cli)
        assert run("list", command=keys_cli).count(f"account {alice['id']}") == 2
        run("create", "x", "--account", "bob@example.com", fails="nexus accounts list", command=keys_cli)
        run("create", "x", "--account", "acct_none", fails="no account", command=keys_cli)
        run("create", "x", "--account", alice["id"], "--scope", "admin", fails="admin", command=keys_cli)

    async def test_a_running_gateway_hears_of_changes(self, gateway, run, tmp_path):
        """An account that was made beside it signs in; when it is disabled there, session and key end here."""
        await asyncio.to_thread(
            run, "create", "a@example.com", "--role", "developer", "--password-stdin", stdin=PASSWORD
        )
        signed_in = await gateway.post({"email": "a@example.com", "password": PASSWORD}, f"{ACCOUNT}/sign-in")
        me = bearer(signed_in.json()["token"])
        key = bearer((await gateway.post({"name": "x"}, f"{ACCOUNT}/keys", headers=me)).json()["key"])
        assert (await gateway.http.get("/v1/models", headers=key)).status_code == 200
        await asyncio.to_thread(run, "disable", "a@example.com")
        check(await gateway.http.get(ACCOUNT, headers=me), 401, "invalid_session")
        status = 200
        for _ in range(200):
            if (status := (await gateway.http.get("/v1/models", headers=key)).status_code) != 200:
                break
            await asyncio.sleep(0.05)
        assert status == 401
