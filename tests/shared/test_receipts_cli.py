"""`nexus receipts`: from a gateway's answers to a verdict in words."""

import http.server
import json
import threading
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from shared.errors import NexusError
from shared.receipts import BEGINNING, Receipt, ReceiptKey, Statement, to_line
from shared.receipts_cli import app

KEY = ReceiptKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
OWNER = "acct_0123456789abcdef"


def lines(count: int) -> list[bytes]:
    signed, previous = [], BEGINNING
    for number in range(1, count + 1):
        receipt = Receipt(
            id=f"rcpt_{number}",
            key=KEY.name,
            owner=OWNER,
            sequence=number,
            previous=previous,
            kind="work",
            node="n",
            request=f"req_{number}",
            model="tiny",
            first=1,
            last=2,
            drafted=3,
            accepted=2,
            marginal=2,
            price=1_000_000,
            price_version="v",
            amount=1500,
            at=number,
        )
        signed.append(KEY.sign_receipt(receipt))
        previous = signed[-1].digest
    told = Statement(key=KEY.name, owner=OWNER, count=count, head=previous, total=1500 * count, at=9)
    return [*map(to_line, signed), to_line(KEY.sign_statement(told))]


class Played(http.server.BaseHTTPRequestHandler):
    """A gateway with three receipts, two on a page."""

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        if address.path == "/receipts/keys":
            data = {"object": "list", "data": [{"name": KEY.name, "public": KEY.public.hex()}]}
        elif self.headers["authorization"] != "Bearer nxs_token":
            self._answer({"error": {"message": "This session is over. Sign in again."}}, 401)
            return
        else:
            after = int(parse_qs(address.query)["after"][0])
            *all_, statement = map(json.loads, lines(3))
            page = all_[after : after + 2]
            more = after + len(page) < 3
            last = after + len(page) if more else None
            data = {"object": "list", "data": page, "statement": statement, "has_more": more, "last": last}
        self._answer(data, 200)

    def _answer(self, data: object, status: int) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def gateway(monkeypatch):
    monkeypatch.setenv("NEXUS_TOKEN", "nxs_token")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Played)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def run(*arguments, status=0):
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == status, (result.output, result.exception)
    return result.output


def fails(*arguments):
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert isinstance(result.exception, NexusError), result.output
    return result.exception.message


def test_the_whole_way(gateway, tmp_path):
    """What is exported, page by page, is good by the keys that are published."""
    file, keys = tmp_path / "receipts.jsonl", tmp_path / "keys.json"
    file.write_text(run("export", f"{gateway}/v1"))
    keys.write_text(run("keys", gateway))
    words = run("verify", file, "--keys", keys)
    assert "3 receipts" in words and "numbers 1 to 3" in words and "$0.0000045" in words and "nothing is wrong" in words
    told = json.loads(run("verify", file, "--key", KEY.public.hex(), "--owner", OWNER, "--json"))
    assert told["total_nano_dollars"] == 4500 and told["complete"] and told["findings"] == []


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda rows: rows[:1] + rows[2:], "line 2: Receipts are missing: number 2."),
        (lambda rows: rows[:2] + rows[3:], "number 3, at the end"),
        (lambda rows: [rows[0], rows[0], *rows[1:]], "line 2: It is here twice"),
        (lambda rows: [rows[1], rows[0], *rows[2:]], "line 2: It stands in the wrong place"),
        (lambda rows: [rows[0].replace(b'"amount":1500', b'"amount":1900'), *rows[1:]], "line 1: Its contents are not"),
        (lambda rows: [rows[0].replace(b'"digest":"', b'"digest":"00'), *rows[1:]], "line 1: The coordinator never"),
        (lambda rows: [b"what", *rows[1:]], "line 1: It is no receipt"),
    ],
)
def test_what_is_wrong_is_said_in_words(tmp_path, spoil, words):
    """And with an exit status that a script can use."""
    file = tmp_path / "receipts.jsonl"
    file.write_bytes(b"\n".join(spoil(lines(3))))
    shown = run("verify", file, "--key", KEY.public.hex(), status=1)
    assert words in shown and "wrong" in shown


def test_other_owners_and_other_keys(tmp_path):
    """Nothing of them counts."""
    file = tmp_path / "receipts.jsonl"
    file.write_bytes(b"\n".join(lines(2)))
    shown = run("verify", file, "--key", KEY.public.hex(), "--owner", "acct_other", status=1)
    assert "another owner" in shown and "no genuine receipt" in shown
    assert "none of the coordinator's" in run("verify", file, "--key", "00" * 32, status=1)
    file.write_bytes(lines(2)[0])
    assert "not known" in run("verify", file, "--key", KEY.public.hex())


def test_mistakes_are_told_in_words(tmp_path, gateway, monkeypatch):
    """A missing file, key or token, and a gateway that is none."""
    file = tmp_path / "receipts.jsonl"
    assert "cannot be read" in fails("verify", file, "--key", "00" * 32)
    file.write_bytes(b"")
    assert "--key" in fails("verify", file)
    assert "64 hexadecimal" in fails("verify", file, "--key", "xyz")
    assert "64 hexadecimal" in fails("verify", file, "--key", "00")
    assert "nexus receipts keys" in fails("verify", file, "--keys", file)
    assert "does not answer" in fails("keys", "http://127.0.0.1:1")
    assert "does not answer" in fails("keys", "no address")
    monkeypatch.setenv("NEXUS_TOKEN", "nxs_old")
    assert "This session is over" in fails("export", gateway)
    monkeypatch.delenv("NEXUS_TOKEN")
    assert "NEXUS_TOKEN" in fails("export", gateway)
