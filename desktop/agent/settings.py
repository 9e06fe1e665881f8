"""What the owner can set: by flag, by environment (`NEXUS_AGENT_*`) or in `agent.toml`, in that order of strength."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from shared.errors import ConfigError
from shared.paths import cache_dir, config_dir

ENV_PREFIX = "NEXUS_AGENT_"
CONNECT_PATH = "/v1/nodes/connect"
DEFAULT_GATEWAY = f"ws://127.0.0.1:8080{CONNECT_PATH}"
DEFAULT_MODEL = "qwen2.5-coder-0.5b"

_SCHEMES = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}


def connect_url(address: str) -> str:
    """The WebSocket address of a gateway, from what a person writes: `host:port` or a URL, path or none.

    Raises ValueError with the remedy.
    """
    text = address.strip()
    parts = urlsplit(text if "://" in text else f"ws://{text}")
    scheme = _SCHEMES.get(parts.scheme)
    try:
        usable = scheme is not None and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is no number, or out of range
        usable = False
    if not usable:
        raise ValueError(f"{address!r} is not a gateway address; write it like wss://host or http://127.0.0.1:8080")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError(f"the address of {parts.hostname} must not hold a user name, a query or a fragment")
    path = parts.path if parts.path not in ("", "/") else CONNECT_PATH
    return f"{scheme}://{parts.netloc}{path}"


def is_loopback(url: str) -> bool:
    """A proxy must not be asked for this machine."""
    return urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")


class AgentSettings(BaseSettings):
    """Settings of `nexus agent run`. Build it with `load`, which turns every fault into a `ConfigError` in words."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="forbid", frozen=True, validate_default=True)

    gateway: Annotated[tuple[str, ...], NoDecode] = Field(default=(DEFAULT_GATEWAY,), min_length=1, max_length=16)
    """Gateways to draft for, best first; the next one is tried when one cannot be reached."""
    model: str = Field(default=DEFAULT_MODEL, min_length=1)
    """Draft model: a name of `nexus models list`, a Hugging Face id, or a local folder."""
    engine: str = Field(default="auto", pattern=r"^(auto|vllm|transformers|[A-Za-z_][\w.]*:[A-Za-z_]\w*)$")
    """`auto`, `vllm`, `transformers`, or `module:factory` for one of your own."""
    streams: int = Field(default=8, ge=1, le=256)
    """Streams drafted for at once, in one batch."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    threads: int = Field(default=0, ge=0, le=4096)
    """CPU threads of the engine; 0 leaves the number to the engine."""
    threads_bind: str | None = Field(default=None, pattern=r"^[0-9,|-]+$|^(auto|nobind)$")
    """CPU cores for vLLM's CPU build, like `0-3` (its VLLM_CPU_OMP_THREADS_BIND); unset leaves it to vLLM."""
    kv_cache_gib: float = Field(default=1.0, gt=0, le=1024)
    """Memory for the KV cache on a CPU, GiB."""
    max_model_len: int = Field(default=4096, ge=16)
    """Longest prompt plus answer that is drafted for, tokens; lowered to the model's own limit."""
    gpu_memory_utilization: float = Field(default=0.3, gt=0, le=1)
    """Share of the GPU's memory that the engine may take."""
    key_file: Path = Field(default_factory=lambda: config_dir() / "node.key")
    """File with this node's secret key; made when it is missing."""
    worker_log: Path = Field(default_factory=lambda: cache_dir() / "logs" / "draft-worker.log")
    """File for what the draft engine prints."""

    @field_validator("gateway", mode="before")
    @classmethod
    def _gateways(cls, value: object) -> object:
        if isinstance(value, str):
            value = [part for part in value.split(",") if part.strip()]
        if isinstance(value, list | tuple):
            return tuple(connect_url(str(item)) for item in value)
        return value

    @field_validator("key_file", "worker_log", mode="after")
    @classmethod
    def _home(cls, value: Path) -> Path:
        return value.expanduser()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags and environment only; `load` adds the file, so that a test or a tool can do without it."""
        return init_settings, env_settings


def load(config: Path | None = None, flags: Mapping[str, Any] | None = None) -> AgentSettings:
    """Settings from flags (None = not given), environment and file.

    `config` must exist when it is given; the default `agent.toml` may be missing. Raises ConfigError.
    """
    path = config if config is not None else config_dir() / "agent.toml"
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    known = set(AgentSettings.model_fields)
    file = _read(path, must_exist=config is not None)
    _no_strangers(file, known, str(path))
    in_environment = {key[len(ENV_PREFIX) :].lower() for key in os.environ if key.upper().startswith(ENV_PREFIX)}
    _no_strangers(in_environment, known, f"environment ({ENV_PREFIX}…)")
    # A file's value counts only where neither a flag nor the environment speaks.
    weak = {name: value for name, value in file.items() if name not in given and name not in in_environment}
    try:
        return AgentSettings(**weak, **given)
    except ValidationError as error:
        raise ConfigError(_in_words(error, weak, given, path), param=_field(error)) from None


def _read(path: Path, *, must_exist: bool) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        if must_exist:
            raise ConfigError(f"There is no settings file {path}; check --config, or leave it out.") from None
        return {}
    except OSError as error:
        raise ConfigError(f"The settings file {path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"The settings file {path} is not valid TOML: {error}.") from None


def _no_strangers(names: Any, known: set[str], where: str) -> None:
    for name in sorted(set(names) - known):
        raise ConfigError(
            f"Unknown setting {name!r} in {where}; the settings are {', '.join(sorted(known))}.", param=name
        )


def _field(error: ValidationError) -> str:
    return str(error.errors()[0]["loc"][0])


def _in_words(error: ValidationError, file: dict[str, Any], flags: dict[str, Any], path: Path) -> str:
    first = error.errors(include_url=False)[0]
    name = _field(error)
    if name in flags:
        where = f"flag --{name.replace('_', '-')}"
    elif name in file:
        where = f"setting {name} in {path}"
    else:
        where = f"environment variable {ENV_PREFIX}{name.upper()}"
    reason = first["msg"].removeprefix("Value error, ")
    if name == "engine" and first["type"] == "string_pattern_mismatch":
        reason = "use auto, vllm, transformers, or module:factory for an engine of your own"
    return f"The {where} is wrong: {reason} (got {first['input']!r})."
