"""Pairs this node with its owner's account: the device flow's client (RFC 8628), without a window or a browser."""

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import msgspec

from desktop.agent.identity import Identity
from desktop.agent.settings import CONNECT_PATH, is_loopback
from shared.errors import NexusError, Unavailable
from shared.keys import pairing_payload

CLIENT_ID: Final = "nexus-agent"
GRANT_TYPE: Final = "urn:ietf:params:oauth:grant-type:device_code"
SLOWER_S: Final = 5.0
"""What each `slow_down` adds to the interval (RFC 8628, 3.5)."""
LONGEST_WAIT_S: Final = 60.0
"""While the gateway cannot be reached, the waits double up to this."""
TIMEOUT_S: Final = 20.0


class PairingFailed(NexusError):
    """The node was not paired; the message says why and what to do."""

    code = "pairing_failed"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway's answer to the first question."""

    device_code: str
    user_code: str
    verification_uri: str
    expires_in: int
    verification_uri_complete: str = ""
    interval: int = 5


class Paired(msgspec.Struct, frozen=True, kw_only=True):
    """The node belongs to an account."""

    access_token: str
    name: str
    owner: str


@dataclass(frozen=True)
class Again:
    """Ask again: after this many seconds more or less than before."""

    slower: bool


class Pairing:
    """One device flow with one gateway. `show` is told once what the owner has to do.

    `clock` gives seconds that do not go back; `sleep` waits.
    """

    def __init__(
        self,
        http: httpx2.AsyncClient,
        identity: Identity,
        name: str,
        show: Callable[[Asked], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._http = http
        self._identity = identity
        self._name = name
        self._show = show
        self._clock = clock
        self._sleep = sleep

    async def run(self) -> Paired:
        """Until the owner has decided. Raises `PairingFailed`, and `Unavailable` when the gateway cannot be reached at
        first; later it is waited for.
        """
        asked = await self._ask()
        until = self._clock() + asked.expires_in
        self._show(asked)
        signature = self._identity.key.sign(pairing_payload(asked.device_code, asked.user_code, asked.verification_uri))
        question = {
            "client_id": CLIENT_ID,
            "grant_type": GRANT_TYPE,
            "device_code": asked.device_code,
            "signature": base64.urlsafe_b64encode(signature).decode(),
        }
        interval_s, lost_s = float(max(asked.interval, 1)), 0.0
        while self._clock() < until:
            await self._sleep(interval_s + lost_s)
            try:
                answer = await self._post("/v1/device/token", question)
            except Unavailable:
                lost_s = min(max(2 * lost_s, interval_s), LONGEST_WAIT_S)
                continue
            lost_s = 0.0
            match read(answer):
                case Paired() as paired:
                    return paired
                case Again(slower=slower):
                    interval_s += SLOWER_S if slower else 0.0
        raise PairingFailed("The code has expired before anybody approved it. Run `nexus agent pair` again.")

    async def _ask(self) -> Asked:
        question = {"client_id": CLIENT_ID, "public_key": self._identity.public_key_hex, "name": self._name}
        answer = await self._post("/v1/device/code", question)
        if answer.status_code == 404:
            raise PairingFailed("This gateway has no accounts that a node could be paired with; it needs no pairing.")
        if answer.status_code != 200:
            raise PairingFailed(f"The gateway gave no code: {_words(answer)}")
        try:
            return msgspec.json.decode(answer.content, type=Asked)
        except msgspec.DecodeError:
            raise PairingFailed("What answers there is no Nexus gateway; check the address.") from None

    async def _post(self, path: str, form: dict[str, str]) -> httpx2.Response:
        try:
            answer = await self._http.post(path, data=form)
        except httpx2.HTTPError as error:
            raise Unavailable(f"The gateway cannot be reached: {str(error) or type(error).__name__}.") from None
        if answer.status_code >= 500 or answer.status_code == 429:
            raise Unavailable(f"The gateway does not answer at the moment: {_words(answer)}")
        return answer


def read(answer: httpx2.Response) -> Paired | Again:
    """What the gateway's answer asks the node to do. Raises `PairingFailed` for every answer that ends the flow."""
    if answer.status_code == 200:
        try:
            return msgspec.json.decode(answer.content, type=Paired)
        except msgspec.DecodeError:
            raise PairingFailed("The gateway's answer cannot be read; update Nexus on this machine.") from None
    match _field(answer, "error"):
        case "authorization_pending":
            return Again(slower=False)
        case "slow_down":
            return Again(slower=True)
        case "expired_token":
            raise PairingFailed("The code has expired before anybody approved it. Run `nexus agent pair` again.")
        case _:
            raise PairingFailed(f"This node was not paired: {_words(answer)}")


def http_base(connect_url: str) -> str:
    """Where the HTTP API of a gateway is, from the WebSocket address that nodes connect to."""
    parts = urlsplit(connect_url)
    scheme = "https" if parts.scheme == "wss" else "http"
    path = parts.path.removesuffix(CONNECT_PATH) if parts.path.endswith(CONNECT_PATH) else ""
    return f"{scheme}://{parts.netloc}{path.rstrip('/')}"


def open_http(base: str) -> httpx2.AsyncClient:
    """A client for one gateway; the caller closes it."""
    return httpx2.AsyncClient(base_url=base, timeout=TIMEOUT_S, trust_env=not is_loopback(base))


def _field(answer: httpx2.Response, name: str) -> Any:
    try:
        data = msgspec.json.decode(answer.content)
    except msgspec.DecodeError:
        return None
    return data.get(name) if isinstance(data, dict) else None


def _words(answer: httpx2.Response) -> str:
    """What an error says, of the device flow's kind or of the rest of the API."""
    described, error = _field(answer, "error_description"), _field(answer, "error")
    if isinstance(described, str):
        return described
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        return str(error["message"])
    return f"HTTP {answer.status_code}."
