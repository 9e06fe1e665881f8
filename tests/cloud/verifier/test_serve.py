"""The command line that `nexus verifier serve` becomes."""

import json
from pathlib import Path

import msgspec
import pytest

from cloud.verifier import versions
from cloud.verifier.serve import fast_bfloat16, launch
from cloud.verifier.settings import PluginSettings, from_additional_config, rank_address
from shared.errors import ConfigError, EngineError
from shared.models import store

SETTINGS = PluginSettings(draft_port="ipc:///run/p", model="m", fingerprint="f", vocabulary=10)


HERMES = (
    """{% if tools %}For each call write <tool_call>\n{"name": <name>, "arguments": <args>}\n</tool_call>{% endif %}"""
)


def argv(*extra: str, on_gpu: bool = False, folder: Path = Path("/models/m")) -> list[str]:
    return launch(folder=folder, settings=SETTINGS, max_draft=4, on_gpu=on_gpu, extra=extra, environ={}).argv


def value(arguments: list[str], flag: str) -> str:
    return arguments[arguments.index(flag) + 1]


def test_the_plugin_is_loaded_through_public_configuration_only() -> None:
    """Scheduler, worker, proposer and settings by name; async scheduling off."""
    arguments = argv()
    assert value(arguments, "--scheduler-cls") == "cloud.verifier.engine.scheduler.DraftScheduler"
    assert value(arguments, "--worker-cls") == "cloud.verifier.engine.worker.CoupledCPUWorker"
    assert json.loads(value(arguments, "--speculative-config"))["num_speculative_tokens"] == 4
    assert "--no-async-scheduling" in arguments
    assert from_additional_config(json.loads(value(arguments, "--additional-config"))) == SETTINGS


def test_flags_of_vllm_pass_through_and_win_over_defaults() -> None:
    """Whatever the user gives is not given twice."""
    arguments = argv("--served-model-name", "other", "--block_size=64", "--port", "9")
    assert value(arguments, "--served-model-name") == "other"
    assert "--block-size" not in arguments
    assert arguments[-5:] == ["--served-model-name", "other", "--block_size=64", "--port", "9"]


def ability(arguments: list[str]) -> tuple[bool, bool]:
    """Whether gateways are told that the model can call tools, and that its effort can be set."""
    settings = from_additional_config(json.loads(value(arguments, "--additional-config")))
    return settings.tools, settings.effort


def test_tool_calls_are_on_where_the_template_asks_for_a_known_form(tmp_path: Path) -> None:
    """From either file that has the template; and only then."""
    (tmp_path / "chat_template.jinja").write_text(HERMES)
    arguments = argv(folder=tmp_path)
    assert "--enable-auto-tool-choice" in arguments and value(arguments, "--tool-call-parser") == "nexus_hermes"
    assert value(arguments, "--tool-parser-plugin") == "cloud.verifier.engine.tool_parser"
    assert ability(arguments) == (True, False)
    (tmp_path / "chat_template.jinja").write_text("{{ messages }} {{ enable_thinking }}")
    assert "--tool-call-parser" not in argv(folder=tmp_path)
    assert ability(argv(folder=tmp_path)) == (False, True)
    (tmp_path / "chat_template.jinja").unlink()
    for template in (HERMES, [{"name": "default", "template": "x"}, {"name": "tool_use", "template": HERMES}]):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
        assert value(argv(folder=tmp_path), "--tool-call-parser") == "nexus_hermes"
    (tmp_path / "tokenizer_config.json").write_text("{}")
    assert ability(argv(folder=tmp_path)) == (False, False)


def test_the_users_word_on_tool_calls_wins(tmp_path: Path) -> None:
    """A parser of theirs turns calls on; without a template that tells of tools they are of no use."""
    (tmp_path / "chat_template.jinja").write_text(HERMES)
    arguments = argv("--tool-call-parser", "llama3_json", folder=tmp_path)
    assert arguments.count("--tool-call-parser") == 1 and "--enable-auto-tool-choice" in arguments
    assert ability(arguments) == (True, False)
    assert ability(argv("--no-enable-auto-tool-choice", folder=tmp_path)) == (False, False)
    mine = tmp_path / "mine.jinja"
    mine.write_text("{{ messages }}")
    assert ability(argv("--tool-call-parser=hermes", "--chat-template", str(mine), folder=tmp_path)) == (False, False)
    assert ability(argv(f"--chat_template={HERMES}")) == (True, False)


@pytest.mark.parametrize("name", ["qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b", "smollm2-135m"])
def test_models_of_the_catalogue_that_are_here(name: str) -> None:
    """Their own templates are read as they should be."""
    if not (folder := store.folder_of(name)).exists():
        pytest.skip(f"{name} is not on this machine")
    assert ability(argv(folder=folder))[0] is name.startswith("qwen")


@pytest.mark.parametrize(
    "flag",
    [
        "--scheduler-cls",
        "--worker_cls",
        "--speculative-config={}",
        "--speculative_config.method=ngram",
        "-sc",
        "--async-scheduling",
        "--model=other",
    ],
)
def test_flags_that_the_plugin_needs_are_refused_in_words(flag: str) -> None:
    """They would switch the plugin off, or half of it."""
    with pytest.raises(ConfigError, match="cannot be set"):
        argv(flag)


def test_the_users_additional_config_is_kept() -> None:
    """Ours is one key beside it."""
    merged = json.loads(value(argv("--additional-config", '{"mine": 1}'), "--additional-config"))
    assert merged["mine"] == 1
    assert merged["nexus"] == msgspec.to_builtins(SETTINGS)
    with pytest.raises(ConfigError, match="JSON object"):
        argv("--additional-config", "nonsense")
    with pytest.raises(ConfigError, match="whole, as a JSON object"):
        argv("--additional_config.mine", "1")


def test_a_gpu_gets_the_gpu_worker_and_no_cpu_settings() -> None:
    """Chosen by the installed build."""
    arguments = argv(on_gpu=True)
    assert value(arguments, "--worker-cls").endswith("CoupledGPUWorker")
    assert "--enforce-eager" not in arguments


def test_bfloat16_is_left_alone_only_where_the_cpu_is_fast_at_it() -> None:
    """An x86 CPU without AVX-512 computes in float32; a user's own --dtype wins."""
    assert not fast_bfloat16(frozenset({"sse2", "avx2"}))
    assert fast_bfloat16(frozenset({"sse2", "avx2", "avx512f"}))
    assert fast_bfloat16(frozenset({"asimd", "bf16"}))
    assert fast_bfloat16(frozenset())
    assert argv("--dtype", "bfloat16").count("--dtype") == 1


def test_the_environment_keeps_what_is_set() -> None:
    """A user's own KV cache size wins over ours."""
    env = launch(
        folder=Path("/m"),
        settings=SETTINGS,
        max_draft=4,
        on_gpu=False,
        extra=(),
        environ={"VLLM_CPU_KVCACHE_SPACE": "1"},
    ).env
    assert env["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert env["VLLM_USE_V2_MODEL_RUNNER"] == "0"


def test_rank_addresses_and_wrong_ones() -> None:
    """One socket per data-parallel rank."""
    assert rank_address("ipc:///run/p", 2) == "ipc:///run/p-2"
    assert rank_address("tcp://10.0.0.1:70", 2) == "tcp://10.0.0.1:72"
    for wrong in ("http://x", "tcp://x", "p"):
        with pytest.raises(ConfigError, match="draft port"):
            rank_address(wrong, 0)


def test_an_engine_started_by_hand_without_settings_is_told_how() -> None:
    """The message names the command."""
    with pytest.raises(ConfigError, match="nexus verifier serve"):
        from_additional_config({})
    with pytest.raises(ConfigError, match="is wrong"):
        from_additional_config({"nexus": {"draft_port": 5}})


def test_an_untested_vllm_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its internals may differ, and then answers could be wrong."""
    monkeypatch.setattr(versions, "installed", lambda: ("vllm", "0.33.0"))
    with pytest.raises(EngineError, match=r"vllm 0\.33\.0 is installed.*pip install vllm==0\.32\.0"):
        versions.check()
    monkeypatch.setattr(versions, "installed", lambda: None)
    with pytest.raises(EngineError, match="not installed"):
        versions.check()
    monkeypatch.setattr(versions, "installed", lambda: ("vllm-cpu", "0.32.0+local"))
    assert versions.check() == ("vllm-cpu", "0.32.0+local")
