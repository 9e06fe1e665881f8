"""`GET /device`: the page on which an owner approves a node. It holds no secret; all it does goes through the API."""

import base64
import hashlib

from fastapi import APIRouter
from starlette.responses import Response

from cloud.api.routes.device import PAGE

router = APIRouter()
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 26rem; margin: 4rem auto; padding: 0 1rem; color: #1b1f24 }
input { display: block; width: 100%; box-sizing: border-box; font: inherit; padding: .5rem; margin: .2rem 0 1rem }
input[name=user_code] { letter-spacing: .15em; text-transform: uppercase }
button { font: inherit; padding: .5rem 1rem; margin-right: .5rem }
dt { font-weight: 600 } dd { margin: 0 0 .5rem; overflow-wrap: anywhere }
#words { min-height: 1.5em } .wrong { color: #a40e26 }
"""
SCRIPT = """
const $ = (id) => document.getElementById(id);
let token = null;
const typed = new URLSearchParams(location.search).get("user_code");
if (typed) $("ask").elements.user_code.value = typed;
function say(words, wrong) { $("words").textContent = words; $("words").className = wrong ? "wrong" : ""; }
function show(step) { for (const id of ["ask", "check"]) $(id).hidden = id !== step; }
async function call(method, path, body) {
  const headers = { "content-type": "application/json" };
  if (token) headers.authorization = "Bearer " + token;
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
  const data = await answer.json();
  if (!answer.ok) throw new Error(data.error.message);
  return data;
}
async function attempt(work) {
  say("");
  try { await work(); } catch (error) { say(error.message, true); }
}
let code = "";
$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const form = event.target.elements;
  code = form.user_code.value;
  attempt(async () => {
    if (!token) {
      const who = { email: form.email.value, password: form.password.value };
      token = (await call("POST", "v1/account/sign-in", who)).token;
      form.password.value = "";
    }
    const pairing = await call("GET", "v1/owner/pairings/" + encodeURIComponent(code));
    $("name").textContent = pairing.name;
    $("node").textContent = pairing.node;
    $("address").textContent = pairing.address;
    show("check");
  });
});
async function decide(verb, words) {
  await attempt(async () => {
    await call("POST", "v1/device/" + verb, { user_code: code });
    await call("POST", "v1/account/sign-out");
    token = null;
    show("none");
    say(words);
  });
}
$("approve").addEventListener("click", () => decide("approve", "Approved. The machine goes on by itself."));
$("deny").addEventListener("click", () => decide("deny", "Denied. Nothing was paired."));
"""
HTML = f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Pair a node - Nexus</title>
<style>{STYLE}</style>
<h1>Pair a node</h1>
<form id="ask">
<p>Sign in and type the code that your machine shows.</p>
<label>E-mail <input name="email" type="email" autocomplete="username" required></label>
<label>Password <input name="password" type="password" autocomplete="current-password" required></label>
<label>Code <input name="user_code" autocomplete="off" spellcheck="false" required></label>
<button>Go on</button>
</form>
<div id="check" hidden>
<p>Pair only a machine that is yours and shows this code now.</p>
<dl><dt>Name</dt><dd id="name"></dd><dt>Node</dt><dd id="node"></dd><dt>Asked from</dt><dd id="address"></dd></dl>
<button id="approve">Approve</button><button id="deny">Deny</button>
</div>
<p id="words" role="status"></p>
<script>{SCRIPT}</script>
</html>
"""


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


HEADERS = {
    "content-security-policy": f"default-src 'none'; script-src {_hash(SCRIPT)}; style-src {_hash(STYLE)}; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@router.get(PAGE)
async def device_page() -> Response:
    return Response(HTML, headers=HEADERS, media_type="text/html")
