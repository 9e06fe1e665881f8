"""The converted models are complete: an engine can load them and a chat ends."""

import json
from pathlib import Path

import pytest

from shared.models.fetch import fetch

pytestmark = pytest.mark.model

TEXT = "The year 12345 isn't  it?\n\n  x=1  <|im_end|>é"


@pytest.fixture(scope="module")
def smollm2() -> Path:
    """The real folder, fetched when it is missing."""
    return fetch("smollm2-135m")


def test_the_config_names_the_architecture_and_the_end_of_a_turn(smollm2: Path) -> None:
    """No quantisation is left over, and generation stops at the end of a turn."""
    config = json.loads((smollm2 / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert "quantization_config" not in config
    assert config["vocab_size"] == 49152
    generation = json.loads((smollm2 / "generation_config.json").read_text())
    assert 2 in (
        generation["eos_token_id"] if isinstance(generation["eos_token_id"], list) else [generation["eos_token_id"]]
    )


def test_the_tokenizer_round_trips_and_renders_the_chat_template(smollm2: Path) -> None:
    """Ids come back as the text they came from, digits are split, and a turn ends with <|im_end|>."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    assert tokenizer.decode(tokenizer(TEXT).input_ids) == TEXT
    assert tokenizer.tokenize("123") == ["1", "2", "3"]
    assert tokenizer.eos_token == "<|im_end|>"
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
