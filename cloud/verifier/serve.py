"""Turns `nexus verifier serve` into the command line of a stock vLLM server that loads the plugin."""

import json
import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from cloud.verifier.engine.plugin import VERIFIER_ENV
from cloud.verifier.settings import CONFIG_KEY, PluginSettings
from cloud.verifier.template import read_template, tells_of_effort, tells_of_tools, tool_parser
from shared.errors import ConfigError

_ENGINE = "cloud.verifier.engine"
_OURS = {
    "--scheduler-cls": "the plugin's scheduler takes the drafts in",
    "--worker-cls": "the plugin's worker samples",
    "--speculative-config": "drafts come from nodes; set their greatest length with --max-draft",
    "-sc": "drafts come from nodes; set their greatest length with --max-draft",
    "--model": "the model is named before the flags, and its tokenizer is read from there",
    "--async-scheduling": "drafts need each step's result before the next is scheduled",
}
"""vLLM flags that the plugin needs for itself, and why."""

CPU_KV_CACHE_GIB = "4"
"""KV cache on a machine without a GPU, unless VLLM_CPU_KVCACHE_SPACE or a flag says otherwise: vLLM would take nearly
all memory, and a draft node may run beside it."""
MAX_LOGPROBS = 21
"""OpenAI's 20, and one more: the engine counts the sampled token among them, likely or not."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A process to start: its arguments and its environment."""

    argv: list[str]
    env: dict[str, str] = field(repr=False)


def launch(
    *,
    folder: Path,
    settings: PluginSettings,
    max_draft: int,
    on_gpu: bool,
    extra: Sequence[str],
    environ: Mapping[str, str],
) -> Launch:
    """The stock server's command line.

    Args:
        folder: the target model, in a form that vLLM loads.
        settings: the plugin's settings.
        max_draft: greatest number of draft tokens that a step checks for one request.
        on_gpu: which of vLLM's two builds is installed.
        extra: further flags of `vllm serve`, given by the user.
        environ: the environment to start from.

    Raises:
        ConfigError: a flag collides with what the plugin needs, or its value is wrong.
    """
    given = {flag.split("=", 1)[0].replace("_", "-") for flag in extra if flag.startswith("-")}
    names = {flag.split(".", 1)[0] for flag in given}  # vLLM takes --flag.key value for one key of a JSON object
    for flag, reason in _OURS.items():
        if flag in names:
            raise ConfigError(f"{flag} cannot be set: {reason}.")
    extra, additional = _split_additional(extra)
    template = _own_template(extra) or read_template(folder)
    parser_flags = _tool_flags(template, given)
    can_call = bool(parser_flags) or "--enable-auto-tool-choice" in given
    settings = msgspec.structs.replace(
        settings, tools=can_call and tells_of_tools(template), effort=tells_of_effort(template)
    )
    additional[CONFIG_KEY] = msgspec.to_builtins(settings)
    speculative = {
        "method": "custom_class",
        "model": f"{_ENGINE}.proposer.SilentProposer",
        "num_speculative_tokens": max_draft,
    }
    worker = "CoupledGPUWorker" if on_gpu else "CoupledCPUWorker"
    argv = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    argv += ["--scheduler-cls", f"{_ENGINE}.scheduler.DraftScheduler"]
    argv += ["--worker-cls", f"{_ENGINE}.worker.{worker}"]
    argv += ["--speculative-config", json.dumps(speculative), "--no-async-scheduling"]
    argv += ["--additional-config", json.dumps(additional)]
    defaults = {
        "--served-model-name": [settings.model],
        "--generation-config": ["vllm"],
        "--host": ["127.0.0.1"],
        "--enable-prompt-tokens-details": [],
        "--max-logprobs": [str(MAX_LOGPROBS)],
        **parser_flags,
    }
    if not on_gpu:
        defaults |= {"--block-size": ["32"], "--enforce-eager": []}
        if not fast_bfloat16(_cpu_flags()):
            defaults["--dtype"] = ["float32"]
    for flag, values in defaults.items():
        if flag not in given:
            argv += [flag, *values]
    return Launch(argv=[*argv, *extra], env=_environment(environ, on_gpu, given))


def _own_template(extra: Sequence[str]) -> str:
    """The text of the user's `--chat-template`, which vLLM takes as a file or as it is; empty without one."""
    for place, flag in enumerate(extra):
        name, equals, value = flag.partition("=")
        if name.replace("_", "-") == "--chat-template":
            given = value if equals else next(iter(extra[place + 1 :]), "")
            try:
                return Path(given).read_text(encoding="utf-8")
            except (OSError, ValueError):
                return given
    return ""


def _tool_flags(template: str, given: set[str]) -> dict[str, list[str]]:
    """Turns tool calls on where the template's own form of them is known, or the user names a parser."""
    if "--no-enable-auto-tool-choice" in given:
        return {}
    if "--tool-call-parser" in given:
        return {"--enable-auto-tool-choice": []}
    if given & {"--enable-auto-tool-choice", "--tool-parser-plugin"} or (parser := tool_parser(template)) is None:
        return {}
    plugin = f"{_ENGINE}.tool_parser"
    return {"--enable-auto-tool-choice": [], "--tool-call-parser": [parser], "--tool-parser-plugin": [plugin]}


def _split_additional(extra: Sequence[str]) -> tuple[list[str], dict[str, object]]:
    """Takes the user's own `--additional-config` out, so that ours can be added to it."""
    rest: list[str] = []
    additional: dict[str, object] = {}
    flags = iter(extra)
    for flag in flags:
        name, equals, value = flag.partition("=")
        if name.replace("_", "-").startswith("--additional-config."):
            raise ConfigError("--additional-config must be given whole, as a JSON object.")
        if name.replace("_", "-") != "--additional-config":
            rest.append(flag)
            continue
        try:
            parsed = json.loads(value if equals else next(flags, ""))
        except json.JSONDecodeError as error:
            raise ConfigError(f"--additional-config must be a JSON object: {error}") from error
        if not isinstance(parsed, dict):
            raise ConfigError("--additional-config must be a JSON object.")
        additional |= parsed
    return rest, additional


def _environment(environ: Mapping[str, str], on_gpu: bool, given: set[str]) -> dict[str, str]:
    env = dict(environ)
    env["VLLM_USE_V2_MODEL_RUNNER"] = "0"
    env[VERIFIER_ENV] = "1"
    if on_gpu:
        return env
    # The CPU build compiles a helper for log-probabilities on first use and fails without a C++ compiler.
    env.setdefault("TORCHDYNAMO_DISABLE", "1")
    if not given & {"--kv-cache-memory-bytes", "--gpu-memory-utilization"}:
        env.setdefault("VLLM_CPU_KVCACHE_SPACE", CPU_KV_CACHE_GIB)
    openmp = Path(sysconfig.get_path("data")) / "lib" / "libiomp5.so"
    if openmp.exists() and "libiomp5" not in env.get("LD_PRELOAD", ""):
        # vLLM's own advice for its CPU build; without it, speculation loses much of its speed there.
        env["LD_PRELOAD"] = ":".join(filter(None, [env.get("LD_PRELOAD"), str(openmp)]))
    return env


def fast_bfloat16(cpu_flags: frozenset[str]) -> bool:
    """Whether the CPU multiplies bfloat16 matrices well; unknown flags count as yes, which is vLLM's own default.

    Without AVX-512, x86 CPUs fall back to a loop that is many times slower than float32.
    """
    return not cpu_flags or "avx512f" in cpu_flags or "sse2" not in cpu_flags


def _cpu_flags() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset()
    line = next((line for line in text.splitlines() if line.startswith(("flags", "Features"))), "")
    return frozenset(line.partition(":")[2].split())


def replace_process(what: Launch) -> None:
    """Becomes the server: signals reach it directly, and no process stands in between."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(what.argv[0], what.argv, what.env)
