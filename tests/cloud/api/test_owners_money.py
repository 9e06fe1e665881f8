"""Earnings, receipts, payouts, usage and disputes through the real gateway, for owners, developers and operators."""

import msgspec
import pytest
from support.api_errors import check

from cloud.api.accounts.charges import Charge
from cloud.api.accounts.keys import Terms
from cloud.api.accounts.money import Nano, Pico
from cloud.api.ledger.entries import adjustment, top_up
from cloud.api.ledger.places import payable
from cloud.api.ledger.ports import Batch
from cloud.api.ledger.settlement import NodeShare, NodeWork, Settlement
from cloud.api.market.minutes import MinuteReport, NodeMinute
from cloud.api.settings import IdentityOptions
from shared.receipts import check as check_receipts
from shared.receipts import from_line, keyring
from shared.wire.messages import DemandReason

DOLLAR = 10**9
IBAN = "DE89370400440532013000"


@pytest.fixture(params=["memory", "sqlite"])
def extra(request, tmp_path, sqlite_template):
    quick = {"identity": IdentityOptions(argon2_memory_kib=7168, argon2_passes=1, argon2_lanes=1)}
    if request.param == "memory":
        return quick
    return {**quick, "database": sqlite_template.copy(tmp_path / "gateway.db")}


class People:
    """Accounts by name, and requests that they make."""

    def __init__(self, gateway):
        self._gateway = gateway
        self.ids = {}
        self._headers = {}

    async def join(self, name, *roles):
        identity = self._gateway.app.state.identity
        email = f"{name}@example.com"
        made = await identity.people.create(email, name, roles, "correct horse battery", "system")
        response = await self._gateway.post(
            {"email": email, "password": "correct horse battery"}, "/v1/account/sign-in", headers={"authorization": ""}
        )
        assert response.status_code == 200, response.text
        self.ids[name] = made.id
        self._headers[name] = {"authorization": f"Bearer {response.json()['token']}"}

    async def __call__(self, name, method, path, body=None):
        return await self._gateway.http.request(method, path, json=body, headers=self._headers[name])

    async def get(self, name, path):
        response = await self(name, "GET", path)
        assert response.status_code == 200, response.text
        return response.json()


@pytest.fixture
async def people(gateway):
    people = People(gateway)
    await people.join("olga", "owner", "developer")
    await people.join("dan", "developer")
    await people.join("alice", "operator")
    await people.join("bob", "operator", "owner")
    return people


@pytest.fixture
async def settled(gateway, people):
    """A request of Dan's that a node of Olga's and one of Bob's drafted for, and one of Olga's own with her node."""
    state = gateway.app.state
    key = (await state.accounts.create(Terms(name="dan's"), people.ids["dan"])).key
    own = (await state.accounts.create(Terms(name="olga's", monthly_budget=Nano(DOLLAR)), people.ids["olga"])).key
    at = int(state.treasury.clock())
    for account in ("dan", "olga"):
        await state.books.post(top_up(people.ids[account], Nano(DOLLAR), f"pay-{account}"))
    for name, by, account, owners in (("req_1", key, "dan", ("olga", "bob")), ("req_2", own, "olga", ("olga",))):
        charge = Charge(
            request_id=name,
            key_id=by.id,
            at=at,
            model="tiny",
            path="/v1/completions",
            streamed=False,
            outcome="answered",
            prompt_tokens=9,
            cached_tokens=2,
            completion_tokens=80,
            cost=Nano(40_000),
        )
        shares = tuple(
            NodeShare(
                work=NodeWork(node=f"{owner:f<32}", drafted=80, accepted=60, marginal=50, first=9, last=88, joules=36),
                owner=people.ids[owner],
                price=Pico(120_000),
                price_version="spot",
                amount=Nano(6000),
            )
            for owner in owners
        )
        settlement = Settlement(
            charge=charge, account=people.ids[account], target="tiny", price_version="p", shares=shares
        )
        await state.books.write(Batch(settlements=[settlement]))
    return {"dan": key.id, "olga": own.id}


async def test_an_owner_sees_what_was_earned(gateway, people, settled):
    """By day and node, net of electricity at a tariff that the owner may set, and where the money stands."""
    found = await people.get("olga", "/v1/owner/earnings")
    [day] = found["days"]
    assert (day["amount"], day["receipts"], day["marginal"], day["joules"]) == ("0.000012", 2, 100, "72")
    assert found["balance"] == {"pending": "0.000012", "payable": "0", "paying": "0", "paid": "0"}
    assert found["tariff"] == {"object": "tariff", "dollars_per_kwh": "0.15", "assumed": True}
    assert day["electricity"] == "0.000003" and day["net"] == "0.000009"
    [node] = found["nodes"]
    assert node["node"].startswith("olga") and node["amount"] == "0.000012"
    dear = await people("olga", "PUT", "/v1/owner/tariff", {"dollars_per_kwh": "0.90"})
    assert dear.json() == {"object": "tariff", "dollars_per_kwh": "0.9", "assumed": False}
    [day] = (await people.get("olga", "/v1/owner/earnings?days=1"))["days"]
    assert day["net"] == "-0.000006"
    check(await people("olga", "GET", "/v1/owner/earnings?days=0"), 400, "invalid_request", "days")
    check(
        await people("olga", "PUT", "/v1/owner/tariff", {"dollars_per_kwh": "-1"}),
        400,
        "invalid_request",
        "dollars_per_kwh",
    )


async def test_receipts_can_be_checked_by_anybody(gateway, people, settled):
    """With the public keys, which need no sign-in: genuine, complete, and as much as the ledger says."""
    keys = (await gateway.http.get("/receipts/keys", headers={"authorization": ""})).json()["data"]
    entries, after = [], 0
    while True:
        found = await people.get("olga", f"/v1/owner/receipts?limit=1&after={after}")
        entries += found["data"]
        if not found["has_more"]:
            break
        after = found["last"]
    lines = [msgspec.json.encode(entry) for entry in [*entries, found["statement"]]]
    ring = keyring(bytes.fromhex(key["public"]) for key in keys)
    checked = check_receipts([from_line(line) for line in lines], ring, people.ids["olga"])
    assert checked.findings == () and checked.complete and checked.count == 2 and checked.total == 12_000


async def test_activity_has_reasons_in_words(gateway, people):
    """Of the owner's nodes only."""
    minute = NodeMinute(
        node="olga",
        owner=people.ids["olga"],
        minute=60,
        reason=DemandReason.ASK_TOO_HIGH,
        words="The node asks more than the market pays.",
        streams=0,
        drafted=0,
        accepted=0,
        marginal=0,
        earned=Nano(0),
        millijoules=None,
    )
    await gateway.app.state.market.store.record(MinuteReport(60, "gw", nodes=(minute,)))
    [told] = (await people.get("olga", "/v1/owner/activity"))["data"]
    assert told["reason"] == "ask_too_high" and told["words"] == minute.words
    assert (await people.get("bob", "/v1/owner/activity"))["data"] == []


async def test_a_payout_by_hand(gateway, people):
    """Asked for, approved by two operators who are not its owner, in a batch for the bank, and paid by its results."""
    books = gateway.app.state.books
    await books.post(adjustment(payable(people.ids["bob"]), Nano(50 * DOLLAR), "start", reason="for the test"))
    check(await people("bob", "POST", "/v1/owner/payouts", {}), 409, "conflict")
    where = {"name": "=Bob", "iban": IBAN}
    shown = await people("bob", "PUT", "/v1/owner/destination", where)
    assert shown.json()["destination"] == "=Bob, DE89…3000"
    check(await people("bob", "POST", "/v1/owner/payouts", {"amount": "60"}), 409, "conflict", "amount")
    check(await people("bob", "POST", "/v1/owner/payouts", {"amount": "1"}), 400, "invalid_request", "amount")
    asked = await people("bob", "POST", "/v1/owner/payouts", {"amount": "20"})
    assert asked.status_code == 201
    payout = asked.json()["id"]
    approve = f"/admin/payouts/{payout}/approve"
    check(await people("bob", "POST", approve), 403, "permission_denied")
    assert (await people("alice", "POST", approve)).json()["state"] == "asked"
    check(await people("alice", "POST", approve), 403, "permission_denied")
    check(await people("alice", "POST", "/admin/payouts/batches"), 409, "conflict")
    admin = await gateway.app.state.accounts.create(Terms(name="admin", scopes=frozenset({"admin"})))
    headers = {"authorization": f"Bearer {admin.secret}"}
    assert (await gateway.http.post(approve, headers=headers)).json()["state"] == "approved"
    batch = (await people("alice", "POST", "/admin/payouts/batches")).json()
    csv = await people("alice", "GET", f"/admin/payouts/batches/{batch['id']}")
    assert f'"{payout}","20.00","USD","\'=Bob","{IBAN}"' in csv.text
    results = f"/admin/payouts/batches/{batch['id']}/results"
    wrong = {"csv": f"payout,amount,result\n{payout},19.00,paid\n"}
    assert "line 2" in check(await people("alice", "POST", results, wrong), 400, "invalid_request")
    right = {"csv": f"payout,amount,result,reference\n{payout},20.00,paid,bank-77\n"}
    for _ in range(2):
        [paid] = (await people("alice", "POST", results, right)).json()["data"]
        assert (paid["state"], paid["reference"], paid["reviewed_by"]) == ("paid", "bank-77", people.ids["alice"])
    earnings = await people.get("bob", "/v1/owner/earnings")
    assert earnings["balance"] == {"pending": "0", "payable": "30", "paying": "0", "paid": "20"}
    again = (await people("bob", "POST", "/v1/owner/payouts", {})).json()
    assert again["amount"] == "30"
    gone = await people("bob", "DELETE", f"/v1/owner/payouts/{again['id']}")
    assert gone.json()["state"] == "cancelled"
    check(await people("olga", "DELETE", f"/v1/owner/payouts/{payout}"), 404, "not_found")
    listed = await people.get("alice", f"/admin/payouts?state=paid&owner={people.ids['bob']}")
    assert [each["id"] for each in listed["data"]] == [payout]
    check(await people("alice", "GET", "/admin/payouts?state=lost"), 400, "invalid_request", "state")


async def test_keys_without_an_account_are_one_person(gateway, people):
    """Two of them do not approve a payout."""
    await gateway.app.state.books.post(
        adjustment(payable(people.ids["olga"]), Nano(50 * DOLLAR), "start", reason="for the test")
    )
    await people("olga", "PUT", "/v1/owner/destination", {"name": "Olga", "iban": IBAN})
    payout = (await people("olga", "POST", "/v1/owner/payouts", {})).json()["id"]
    answers = []
    for name in ("one", "two"):
        new = await gateway.app.state.accounts.create(Terms(name=name, scopes=frozenset({"admin"})))
        headers = {"authorization": f"Bearer {new.secret}"}
        answers.append(await gateway.http.post(f"/admin/payouts/{payout}/approve", headers=headers))
    assert answers[0].status_code == 200
    check(answers[1], 403, "permission_denied")
    ended = await people("alice", "POST", f"/admin/payouts/{payout}/cancel", {"reason": "looked into"})
    assert ended.json()["state"] == "cancelled" and ended.json()["reason"] == "looked into"


async def test_a_developer_sees_usage_and_who_saw_the_prompt(gateway, people, settled):
    """By class and number of nodes, and never whose; nothing of others."""
    usage = await people.get("dan", "/v1/developer/usage")
    [row] = usage["data"]
    assert usage["cost"] == "0.00004" and (row["key"], row["model"], row["requests"]) == (settled["dan"], "tiny", 1)
    one = await people.get("dan", "/v1/developer/requests/req_1")
    assert one["seen_by"] == {"verifier": True, "nodes": [{"class": "any", "count": 2}]}
    assert one["accepted_draft_tokens"] == 120 and people.ids["olga"] not in str(one)
    [mine] = (await people.get("olga", "/v1/developer/requests"))["data"]
    assert mine["seen_by"]["nodes"] == [{"class": "own", "count": 1}]
    check(await people("dan", "GET", "/v1/developer/requests/req_2"), 404, "not_found")
    budgets = await people.get("olga", "/v1/developer/budgets")
    assert budgets["available"] == "0.99996" and budgets["reserved"] == "0"
    [key] = budgets["keys"]
    assert key["monthly_budget"] == "1" and key["key"] == settled["olga"]


async def test_disputes(gateway, people, settled):
    """Opened, decided with an adjustment that the owner has a receipt for, and not twice."""
    claim = {"account": people.ids["olga"], "side": "owner", "claim": "too little", "request_id": "req_1"}
    opened = await people("alice", "POST", "/admin/disputes", claim)
    assert opened.status_code == 201
    decide = f"/admin/disputes/{opened.json()['id']}/decide"
    check(await people("alice", "POST", decide, {"reason": "x", "amount": "-1"}), 402, "insufficient_quota")
    check(await people("alice", "POST", decide, {"reason": "x", "amount": "0"}), 400, "invalid_request", "amount")
    decided = (await people("alice", "POST", decide, {"reason": "miscounted", "amount": "0.5"})).json()
    assert decided["state"] == "resolved" and decided["resolved_by"] == people.ids["alice"]
    check(await people("alice", "POST", decide, {"reason": "again"}), 409, "conflict")
    receipts = (await people.get("olga", "/v1/owner/receipts"))["data"]
    assert receipts[-1]["receipt"]["kind"] == "adjustment" and receipts[-1]["receipt"]["amount"] == DOLLAR // 2
    assert (await people.get("olga", "/v1/owner/earnings"))["balance"]["payable"] == "0.5"
    assert (await people.get("alice", "/admin/disputes?state=open"))["data"] == []


async def test_operators_see_books_prices_and_standings(gateway, people, settled):
    """Reconciled, with every version that settlements may name."""
    books = await people.get("alice", "/admin/books")
    assert books["reconciled"] and books["problems"] == [] and books["events"] >= 4
    sums = {each["place"]: each["amount"] for each in books["sums"]}
    assert sums["owner:pending"] == "0.000018" and sums["house:cash"] == "-2"
    prices = await people.get("alice", "/admin/prices")
    assert prices["rates"][0]["payout_share_basis_points"] == 6000
    assert (await people.get("alice", "/admin/nodes/standings"))["data"] == []


async def test_roles(gateway, people):
    """Each part is for its role, and none for an API key or nobody."""
    for path, name in (
        ("/v1/owner/earnings", "dan"),
        ("/v1/developer/usage", "alice"),
        ("/admin/books", "dan"),
        ("/admin/payouts", "olga"),
    ):
        check(await people(name, "GET", path), 403, "permission_denied")
        check(await gateway.http.get(path, headers={"authorization": ""}), 401, "invalid_api_key")
    check(await gateway.post(b"{}", "/webhooks/stripe"), 404, "not_found")
    check(await people("olga", "POST", "/v1/owner/onboarding"), 409, "conflict")
