"""The gateway's settings. Each one is described in docs/settings.md; where they come from is `settings_sources`."""

import random
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from cloud.api import logs
from cloud.api.accounts.money import PICO_PLACES, Nano, Pico, nano, parse_dollars, pico
from cloud.api.accounts.prices import Price
from cloud.api.admission.settings import GateSettings
from cloud.api.broker.settings import BrokerSettings
from cloud.api.draftport.settings import DraftPortSettings
from cloud.api.idempotency.settings import ReplaySettings
from cloud.api.identity.settings import IdentitySettings
from cloud.api.ledger.settings import LedgerSettings
from cloud.api.market.pricebook import Rates
from cloud.api.market.profile import read_profile
from cloud.api.market.settings import MarketSettings
from cloud.api.market.state import Market
from cloud.api.nodes.settings import NodeSettings
from cloud.api.payouts.service import PayoutSettings
from cloud.api.payouts.stripe_rail import StripeSettings
from shared import paths
from shared.errors import ConfigError

ENV_PREFIX = "NEXUS_GATEWAY_"
NO_KEY = (
    "no API key is set, so nobody could use the gateway: make one with `nexus keys create NAME`, set api_keys in the "
    f"settings file or {ENV_PREFIX}API_KEYS, or name a file of keys with --api-keys-file"
)
KEY_FORM = "each key must be at least 8 printable ASCII characters without spaces"
_BROKER = BrokerSettings()
_GATE = GateSettings()
_LEDGER = LedgerSettings()
_MARKET = MarketSettings()
_RATES = Rates()
_REPLAYS = ReplaySettings()
_IDENTITY = IdentitySettings()
Seconds = Annotated[float, Field(gt=0)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class VerifierSettings(_Section):
    """One verifier: its HTTP server and its draft ports, one for each data-parallel rank."""

    url: Annotated[str, Field(pattern=r"^https?://[^\s/]+(/\S*)?$")]
    draft_ports: Annotated[list[str], Field(min_length=1)] = Field(
        default_factory=lambda: [paths.default_draft_port() + "-0"]
    )
    """ZeroMQ addresses; the verifier binds its configured draft port with `-<rank>` behind it."""
    api_key: SecretStr | None = None
    """When the verifier's server asks for one."""

    @field_validator("draft_ports")
    @classmethod
    def _are_addresses(cls, value: list[str]) -> list[str]:
        for port in value:
            if not port.startswith(("ipc://", "tcp://")):
                raise ValueError(f"{port!r} is no ZeroMQ address: it must begin with ipc:// or tcp://")
        return value


class DraftPortOptions(_Section):
    """Keys for draft ports that are reached over a network (ZeroMQ CURVE certificate files)."""

    curve_server: Path | None = None
    curve_secret: Path | None = None
    allow_insecure_tcp: bool = False


class Limits(_Section):
    """Sizes in bytes, times in seconds."""

    max_body_bytes: Annotated[int, Field(ge=1024)] = 2 << 20
    keep_alive_s: Seconds = 10.0
    stalled_client_s: Seconds = 60.0
    connect_timeout_s: Seconds = 5.0
    read_timeout_s: Seconds = 600.0
    probe_timeout_s: Seconds = 3.0
    shutdown_s: Annotated[int, Field(ge=1)] = 20


class PriceOptions(_Section):
    """Dollars for one token, as text so that nothing is rounded: `"0.0000005"` is 0.50 for a million."""

    prompt: str = "0"
    cached_prompt: str | None = None
    """Of a prompt token that the engine did not have to compute; none = as `prompt`."""
    completion: str = "0"

    @field_validator("prompt", "cached_prompt", "completion")
    @classmethod
    def _is_money(cls, value: str | None) -> str | None:
        if value is not None:
            pico(value)
        return value

    def to_price(self) -> Price:
        cached = self.prompt if self.cached_prompt is None else self.cached_prompt
        return Price(pico(self.prompt), pico(cached), pico(self.completion))


class AdmissionOptions(_Section):
    """What is worked on at once, and what may wait."""

    max_streams: Annotated[int, Field(ge=1)] = _GATE.max_streams
    max_tokens: Annotated[int, Field(ge=1)] = _GATE.max_tokens
    queue_requests: Annotated[int, Field(ge=0)] = _GATE.queue_requests
    queue_tokens: Annotated[int, Field(ge=0)] = _GATE.queue_tokens
    deadline_s: Seconds = _GATE.deadline_s

    def to_gate(self) -> GateSettings:
        return GateSettings(**self.model_dump())


class ReplayOptions(_Section):
    """How long answers may be asked for again, and how much of them is kept."""

    keep_s: Seconds = _REPLAYS.keep_s
    retry_window_s: Annotated[float, Field(ge=0)] = _REPLAYS.retry_window_s
    max_answer_bytes: Annotated[int, Field(ge=0)] = _REPLAYS.max_answer_bytes
    max_total_bytes: Annotated[int, Field(ge=0)] = _REPLAYS.max_total_bytes

    def to_replays(self) -> ReplaySettings:
        return ReplaySettings(**self.model_dump())


class BrokerOptions(_Section):
    """The part of the broker's settings that an operator changes."""

    nodes_by_default: bool = _BROKER.nodes_by_default
    k: Annotated[int, Field(ge=1, le=256)] = _BROKER.k
    ahead: Annotated[int, Field(ge=1, le=4096)] | None = _BROKER.ahead
    tapes_per_stream: Annotated[int, Field(ge=1, le=16)] = _BROKER.tapes_per_stream
    candidates: Annotated[int, Field(ge=1, le=4)] = _BROKER.candidates
    max_hold_ms: Annotated[float, Field(ge=0)] = _BROKER.max_hold_ms
    acceptance_floor: Annotated[float, Field(ge=0, lt=1)] = _BROKER.acceptance_floor
    refusal_floor: Annotated[float, Field(ge=0, lt=1)] = _BROKER.refusal_floor
    refusal_min_checked: Annotated[int, Field(ge=1)] = _BROKER.refusal_min_checked
    refusal_s: Seconds = _BROKER.refusal_s
    max_refusal_s: Seconds = _BROKER.max_refusal_s
    max_faults: Annotated[int, Field(ge=1)] = _BROKER.max_faults
    max_excess: Annotated[int, Field(ge=1)] = _BROKER.max_excess
    max_pauses: Annotated[int, Field(ge=1)] = _BROKER.max_pauses
    max_joins: Annotated[int, Field(ge=1)] = _BROKER.max_joins

    def to_broker(self) -> BrokerSettings:
        return BrokerSettings(**self.model_dump())


class LedgerOptions(_Section):
    """Holds and deadlines of money."""

    hold_days: Annotated[int, Field(ge=0, le=365)] = _LEDGER.hold_days
    lease_s: Annotated[int, Field(ge=5, le=86400)] = _LEDGER.lease_s
    spool: Path | None = None

    def to_ledger(self) -> LedgerSettings:
        return LedgerSettings(hold_days=self.hold_days, lease_s=self.lease_s)


class IdentityOptions(_Section):
    """Accounts of people, their sign-in, and the pairing of nodes."""

    sign_up: bool = _IDENTITY.sign_up
    session_s: Annotated[int, Field(ge=60)] = _IDENTITY.session_s
    public_url: Annotated[str, Field(pattern=r"^https?://[^\s/?#]+(/[^\s?#]*)?$", max_length=200)] | None = None
    pairing_s: Annotated[int, Field(ge=60, le=86_400)] = _IDENTITY.pairing_s
    pairing_interval_s: Annotated[int, Field(ge=1, le=60)] = _IDENTITY.pairing_interval_s
    attempts_per_account: Annotated[int, Field(ge=1)] = _IDENTITY.attempts_per_account
    attempts_per_address: Annotated[int, Field(ge=1)] = _IDENTITY.attempts_per_address
    attempts_window_s: Seconds = _IDENTITY.attempts_window_s
    argon2_memory_kib: Annotated[int, Field(ge=7168, le=4 << 20)] = _IDENTITY.argon2_memory_kib
    argon2_passes: Annotated[int, Field(ge=1, le=100)] = _IDENTITY.argon2_passes
    argon2_lanes: Annotated[int, Field(ge=1, le=64)] = _IDENTITY.argon2_lanes

    def to_identity(self, *, pairing_needed: bool) -> IdentitySettings:
        return IdentitySettings(**self.model_dump(), pairing_needed=pairing_needed)


BasisPoints = Annotated[int, Field(ge=0, le=10_000)]


class MarketOptions(_Section):
    """Whether nodes are paid, and by what. Money is dollars as text, shares are basis points."""

    enabled: bool = False
    verifier_dollars_per_hour: str = "0"
    """What a verifier's machine costs; 0 = not told."""
    step_cost: Path | None = None
    """File with a verifier's step costs, tokens to seconds; none = learned from the steps that run."""
    payout_share: BasisPoints = _RATES.share
    tariff_dollars_per_kwh: str = "0.15"
    millijoules_per_token: Annotated[int, Field(ge=0)] = _RATES.millijoules
    ask_margin: Annotated[int, Field(ge=0, le=100_000)] = _RATES.margin
    owner_cap: BasisPoints = _MARKET.owner_cap
    canary_share: BasisPoints = _MARKET.canary_share
    prove_tokens: Annotated[int, Field(ge=1)] = _MARKET.prove_tokens
    least_yield: BasisPoints = _MARKET.least_yield

    @field_validator("verifier_dollars_per_hour", "tariff_dollars_per_kwh")
    @classmethod
    def _is_money(cls, value: str) -> str:
        nano(value)
        return value

    @field_validator("step_cost")
    @classmethod
    def _is_a_profile(cls, value: Path | None) -> Path | None:
        if value is not None:
            read_profile(value)
        return value

    def to_rates(self, hold_days: int) -> Rates:
        """`hold_days` is the ledger's."""
        return Rates(
            share=self.payout_share,
            hold_days=hold_days,
            verifier=Pico(parse_dollars(self.verifier_dollars_per_hour, PICO_PLACES) // 3600),
            tariff=Nano(nano(self.tariff_dollars_per_kwh)),
            millijoules=self.millijoules_per_token,
            margin=self.ask_margin,
        )

    def to_market(self) -> Market | None:
        """None while it is off."""
        if not self.enabled:
            return None
        settings = MarketSettings(
            owner_cap=self.owner_cap,
            canary_share=self.canary_share,
            prove_tokens=self.prove_tokens,
            least_yield=self.least_yield,
        )
        profile = read_profile(self.step_cost) if self.step_cost is not None else None
        return Market(settings, profile=profile, rng=random.Random())


class PayoutOptions(_Section):
    """How owners are paid. `stripe_…` are of use with the rail `stripe` only."""

    rail: Literal["manual", "stripe"] = "manual"
    minimum: str = "10"
    receipt_key: Path | None = None
    """File of the key that signs receipts; none = beside the database."""
    stripe_api_key: SecretStr | None = None
    stripe_webhook_secret: SecretStr | None = None
    stripe_return_url: Annotated[str, Field(pattern=r"^https?://\S+$")] | None = None
    """Where Stripe sends an owner back to."""
    stripe_api_url: Annotated[str, Field(pattern=r"^https?://\S+$")] = "https://api.stripe.com"

    @field_validator("minimum")
    @classmethod
    def _is_money(cls, value: str) -> str:
        if not nano(value):
            raise ValueError("a payout is more than nothing")
        return value

    @model_validator(mode="after")
    def _is_whole(self) -> "PayoutOptions":
        if self.rail == "stripe" and self.to_stripe() is None:
            raise ValueError("rail stripe needs stripe_api_key, stripe_webhook_secret and stripe_return_url")
        return self

    def to_payouts(self) -> PayoutSettings:
        return PayoutSettings(rail=self.rail, minimum=nano(self.minimum))

    def to_stripe(self) -> StripeSettings | None:
        """Also while new payouts go another way: those that Stripe has must come to their end."""
        if not (self.stripe_api_key and self.stripe_webhook_secret and self.stripe_return_url):
            return None
        return StripeSettings(
            api_key=self.stripe_api_key.get_secret_value(),
            webhook_secret=self.stripe_webhook_secret.get_secret_value(),
            api_url=self.stripe_api_url,
            return_url=self.stripe_return_url,
            refresh_url=self.stripe_return_url,
        )


class LogSettings(_Section):
    level: logs.Level = "info"
    format: logs.Format = "text"


class GatewaySettings(BaseSettings):
    """Everything the gateway can be told."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True, validate_default=True
    )

    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    verifiers: Annotated[list[VerifierSettings], Field(min_length=1)] = Field(
        default_factory=lambda: [VerifierSettings(url="http://127.0.0.1:8000")]
    )
    draft_port: DraftPortOptions = DraftPortOptions()
    database: Annotated[str, Field(min_length=1)] = Field(default_factory=lambda: str(paths.data_dir() / "gateway.db"))
    """Path of an SQLite file, an SQLAlchemy URL, or `:memory:`."""
    api_keys: Annotated[list[SecretStr], NoDecode] = []
    api_keys_file: Path | None = None
    node_keys: Annotated[list[str], NoDecode] = []
    metrics_key: Literal["auto", "required", "none"] = "auto"
    limits: Limits = Limits()
    prices: dict[str, PriceOptions] = {}
    admission: AdmissionOptions = AdmissionOptions()
    replays: ReplayOptions = ReplayOptions()
    broker: BrokerOptions = BrokerOptions()
    ledger: LedgerOptions = LedgerOptions()
    identity: IdentityOptions = IdentityOptions()
    market: MarketOptions = MarketOptions()
    payouts: PayoutOptions = PayoutOptions()
    log: LogSettings = LogSettings()

    @field_validator("draft_port")
    @classmethod
    def _ports_fit_together(cls, value: DraftPortOptions, info: ValidationInfo) -> DraftPortOptions:
        try:
            _draft_port_settings(info.data.get("verifiers", []), value)
        except ConfigError as error:
            raise ValueError(error.message) from None
        return value

    @field_validator("api_keys", "node_keys", mode="before")
    @classmethod
    def _commas_separate(cls, value: Any) -> Any:
        if isinstance(value, str):
            return [part.strip() for part in value.split(",") if part.strip()]
        return value

    @field_validator("node_keys")
    @classmethod
    def _are_node_keys(cls, value: list[str]) -> list[str]:
        for key in value:
            if len(key) != 64 or any(c not in "0123456789abcdef" for c in key.lower()):
                raise ValueError("each must be an Ed25519 public key of 64 hexadecimal digits (nexus agent key)")
        return [key.lower() for key in value]

    @field_validator("api_keys")
    @classmethod
    def _keys_have_length(cls, value: list[SecretStr]) -> list[SecretStr]:
        if not all(_can_be_sent(key.get_secret_value()) for key in value):
            raise ValueError(KEY_FORM)
        return value

    @field_validator("api_keys_file")
    @classmethod
    def _some_key(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        # Here and not in a check of the whole, so that it is reported together with other fields' errors.
        keys = read_keys(value) if value is not None else info.data.get("api_keys", ["(wrong)"])
        if not keys and (value is not None or info.data.get("database") == ":memory:"):
            raise ValueError(NO_KEY)
        if value is not None and not all(map(_can_be_sent, keys)):
            raise ValueError(f"{value}: {KEY_FORM}")
        return value

    def all_api_keys(self) -> list[str]:
        """Keys given directly and those of the file. Never log them."""
        keys = [key.get_secret_value() for key in self.api_keys]
        return keys + (read_keys(self.api_keys_file) if self.api_keys_file else [])

    def to_draft_ports(self) -> DraftPortSettings:
        """Every draft port of every verifier."""
        return _draft_port_settings(self.verifiers, self.draft_port)

    def to_prices(self) -> dict[str, Price]:
        """By model name; models that are not named are free."""
        return {model: options.to_price() for model, options in self.prices.items()}

    def to_nodes(self) -> NodeSettings:
        """An empty list of keys lets every node in that proves one."""
        return NodeSettings(allowed_keys=frozenset(map(bytes.fromhex, self.node_keys)) or None)

    def to_identity(self) -> IdentitySettings:
        """Who is paid must be known: with the market on, every node has to be paired."""
        return self.identity.to_identity(pairing_needed=self.market.enabled)

    def metrics_need_key(self) -> bool:
        """By default only when the gateway listens beyond this machine."""
        if self.metrics_key == "auto":
            return self.host not in ("127.0.0.1", "::1", "localhost")
        return self.metrics_key == "required"


def _draft_port_settings(verifiers: list[VerifierSettings], options: DraftPortOptions) -> DraftPortSettings:
    endpoints = tuple(port for verifier in verifiers for port in verifier.draft_ports)
    return DraftPortSettings(endpoints=endpoints or ("ipc://none",), **options.model_dump())


def _can_be_sent(key: str) -> bool:
    """As an API key: it fits into a header, and is not guessed at once."""
    return len(key) >= 8 and key.isascii() and key.isprintable() and " " not in key


def read_keys(path: Path) -> list[str]:
    """One key a line; empty lines and lines that begin with # are skipped."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text file"
        raise ValueError(f"{path} cannot be read ({reason}); name a file with one key on each line") from None
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
