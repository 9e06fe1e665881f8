"""Which engine a name stands for on this machine."""

from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from desktop.agent.engines import choose
from desktop.agent.engines.checks import fit_model_len, read_model_config
from shared.errors import EngineError


def install(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Make exactly these packages findable."""

    def find_spec(name: str) -> ModuleSpec | None:
        return ModuleSpec(name, None) if name in packages else None

    monkeypatch.setattr(choose, "find_spec", find_spec)


def test_auto_prefers_vllm_and_falls_back_to_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what is installed, without importing it."""
    install(monkeypatch, "vllm", "transformers", "torch")
    assert choose.choose("auto") == "vllm"
    install(monkeypatch, "transformers", "torch")
    assert choose.choose("auto") == "transformers"


def test_a_machine_without_any_engine_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways are named."""
    install(monkeypatch, "transformers")
    with pytest.raises(EngineError, match=r"Install vllm .* or torch and transformers"):
        choose.choose("auto")


def test_an_engine_that_was_asked_for_but_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the packages that it lacks; nothing else is taken in its place."""
    install(monkeypatch, "transformers", "torch")
    with pytest.raises(EngineError, match="Engine vllm needs vllm"):
        choose.choose("vllm")
    with pytest.raises(EngineError, match=r"'vlm' is not known\. Use auto, vllm, transformers"):
        choose.choose("vlm")


def test_an_engine_of_the_owners_own_is_taken_as_it_is() -> None:
    """`module:factory` is not looked up."""
    assert choose.choose("my_engines.llama:create") == "my_engines.llama:create"


def test_a_folder_without_a_model_is_refused_in_words(tmp_path: Path) -> None:
    """Missing, malformed and well-formed config.json."""
    with pytest.raises(EngineError, match=r"holds no model: config\.json is missing"):
        read_model_config(str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(EngineError, match="cannot be read"):
        read_model_config(str(tmp_path))
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 2048}')
    config = read_model_config(str(tmp_path))
    assert fit_model_len(config, 4096) == 2048
    assert fit_model_len(config, 100) == 100
    assert fit_model_len({}, 4096) == 4096
