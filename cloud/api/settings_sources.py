"""Reads the settings from file, environment and command line, remembers which gave what, and explains errors."""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from cloud.api.settings import ENV_PREFIX, GatewaySettings
from shared import paths
from shared.errors import ConfigError

DEFAULT_FILE = "gateway.toml"
Json = dict[str, Any]


class SettingsInvalid(ConfigError):
    """`problems` holds every error, each with the field, where it was set and what to do."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class LoadedSettings:
    """The settings in force, and for each dotted name the source that set it (default if absent)."""

    settings: GatewaySettings
    sources: Mapping[str, str]

    def lines(self) -> Iterator[tuple[str, str, str]]:
        """Name, value and source of every setting; secrets are masked."""
        for name, value in flatten(self.settings):
            yield name, value, source_of(name, self.sources)


def load(config: Path | None, flags: Json) -> LoadedSettings:
    """`flags` holds only what was given, nested like the settings. Raises `SettingsInvalid` with all errors."""
    file = config or paths.config_dir() / DEFAULT_FILE
    from_file = _read_file(file, required=config is not None)
    problems: list[str] = []
    sources: dict[str, str] = {}

    class Sourced(GatewaySettings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            sources.update(_names(from_file, f"file {file}"))
            try:
                sources.update(_names(env_settings(), "environment"))
            except Exception as error:  # pydantic-settings wraps what json raised
                raise SettingsInvalid([f"environment: {_short(error)}; lists and tables are JSON"]) from None
            sources.update(_names(flags, "command line"))
            return init_settings, env_settings, _FileSource(settings_cls, from_file)

    problems += _unknown_variables()
    try:
        settings = Sourced(**flags)
    except ValidationError as error:
        problems += [_explain(detail, sources) for detail in error.errors(include_url=False)]
        raise SettingsInvalid(problems) from None
    if problems:
        raise SettingsInvalid(problems)
    return LoadedSettings(settings, sources)


class _FileSource(PydanticBaseSettingsSource):
    def __init__(self, settings_cls: type[BaseSettings], data: Json) -> None:
        super().__init__(settings_cls)
        self._data = data

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return self._data.get(field_name), field_name, False

    def __call__(self) -> Json:
        return self._data


def _read_file(path: Path, *, required: bool) -> Json:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if not required:
            return {}
        raise SettingsInvalid([f"{path}: no such file; check the path given with --config"]) from None
    except OSError as error:
        raise SettingsInvalid([f"{path}: cannot be read ({error.strerror}); check its permissions"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsInvalid([f"{path}: not valid TOML: {error}; correct the file"]) from None


def _unknown_variables() -> Iterator[str]:
    for name in os.environ:
        if not name.upper().startswith(ENV_PREFIX):
            continue
        parts = name.upper().removeprefix(ENV_PREFIX).lower().split("__")
        if not _exists(GatewaySettings, parts):
            yield f"{name} (environment): there is no such setting; see docs/settings.md for the names"


def _exists(model: type[BaseModel], parts: list[str]) -> bool:
    field = model.model_fields.get(parts[0])
    if field is None or len(parts) == 1:
        return field is not None
    inner = field.annotation
    return isinstance(inner, type) and issubclass(inner, BaseModel) and _exists(inner, parts[1:])


def _explain(detail: Any, sources: Mapping[str, str]) -> str:
    name = ""
    for part in detail["loc"]:
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else str(part)
    message: str = detail["msg"].removeprefix("Value error, ")
    if not name:
        return message
    where = source_of(name, sources)
    if detail["type"] == "extra_forbidden":
        return f"{name} ({where}): there is no such setting; see docs/settings.md for the names"
    return f"{name} ({where}): {message[0].lower()}{message[1:]}; correct it there"


def source_of(name: str, sources: Mapping[str, str]) -> str:
    """The source that set `name` or the list or table that it is part of."""
    while name:
        if name in sources:
            return sources[name]
        name = name[: max(name.rfind("."), name.rfind("["), 0)]
    return "default"


def _names(data: Json, source: str, prefix: str = "") -> dict[str, str]:
    names: dict[str, str] = {}
    for key, value in data.items():
        if isinstance(value, dict) and value:
            names |= _names(value, source, f"{prefix}{key}.")
        else:
            names[prefix + key] = source
    return names


def flatten(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted name and printable value of every setting, secrets masked."""
    for key in type(model).model_fields:
        value = getattr(model, key)
        if isinstance(value, BaseModel):
            yield from flatten(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value and isinstance(value[0], BaseModel):
            for index, item in enumerate(value):
                yield from flatten(item, f"{prefix}{key}[{index}].")
        else:
            yield prefix + key, _printable(value)


def _printable(value: Any) -> str:
    if isinstance(value, SecretStr):
        return "********"
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_printable(item)}" for name, item in value.items()) or "none"
    if isinstance(value, list):
        return "[" + ", ".join(_printable(item) for item in value) + "]"
    # A database's URL may hold a password.
    return "none" if value is None else re.sub(r"(://[^:/@]*:).*@", r"\1********@", str(value))


def _short(error: BaseException) -> str:
    return str(error).split("\n")[0]
