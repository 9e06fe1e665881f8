"""Tokenizer fingerprints: equal for one tokenizer in any spelling, different for two."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from shared.errors import ModelError
from shared.fingerprint import fingerprint, read_tokenizer, vocabulary

BASE: dict[str, Any] = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [
        {
            "id": 5,
            "content": "<|end|>",
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
    ],
    "normalizer": {"type": "NFC"},
    "pre_tokenizer": {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "\\s+"}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        ],
    },
    "post_processor": None,
    "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    "model": {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4},
        "merges": [["a", "b"], ["ab", "c"]],
    },
}

Change = Callable[[dict[str, Any]], object]


def folder(path: Path, change: Change = lambda data: None) -> Path:
    """A model folder whose tokenizer is `BASE` with a change."""
    data = copy.deepcopy(BASE)
    change(data)
    path.mkdir(exist_ok=True)
    (path / "tokenizer.json").write_text(json.dumps(data))
    return path


def reversed_keys(data: dict[str, Any]) -> None:
    for part in (data, data["model"], data["model"]["vocab"]):
        items = list(part.items())[::-1]
        part.clear()
        part.update(items)


def old_library(data: dict[str, Any]) -> None:
    data["model"]["merges"] = ["a b", "ab c"]
    for setting in ("byte_fallback", "ignore_merges", "dropout"):
        del data["model"][setting]


def padded(data: dict[str, Any]) -> None:
    data["model"]["vocab"] |= {"[PAD6]": 6, "[PAD7]": 7}


@pytest.mark.parametrize(
    "change",
    [
        reversed_keys,
        old_library,
        padded,
        lambda data: data["model"]["vocab"].update({"<|end|>": 5}),
        lambda data: data.update(padding={"strategy": "BatchLongest"}, truncation={"max_length": 9}),
        lambda data: data.update(post_processor={"type": "ByteLevel"}, decoder=None),
        lambda data: data["pre_tokenizer"]["pretokenizers"][1].update(trim_offsets=False),
        lambda data: data["model"].update(unk_token=""),
    ],
    ids=["key-order", "old-library", "padding-rows", "added-in-vocab", "batch", "after", "offsets", "empty"],
)
def test_one_tokenizer_in_another_spelling_agrees(change: Change, tmp_path: Path) -> None:
    """What does not change tokenization does not change the value, nor the number of ids."""
    assert read_tokenizer(folder(tmp_path / "b", change)) == read_tokenizer(folder(tmp_path / "a"))


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["model"]["vocab"].update(a=1, b=0),
        lambda data: data["model"]["vocab"].update(d=6),
        lambda data: data["model"]["merges"].reverse(),
        lambda data: data["added_tokens"][0].update(content="<|stop|>"),
        lambda data: data["added_tokens"][0].update(special=False),
        lambda data: data["added_tokens"][0].update(lstrip=True),
        lambda data: data.update(added_tokens=[]),
        lambda data: data.update(normalizer=None),
        lambda data: data["pre_tokenizer"]["pretokenizers"][0].update(pattern={"Regex": "\\s"}),
        lambda data: data["pre_tokenizer"]["pretokenizers"].reverse(),
        lambda data: data["model"].update(byte_fallback=True),
    ],
    ids=[
        "ids", "token", "merges", "content", "special", "strip", "added", "normalizer", "regex", "order", "bytes",
    ],
)  # fmt: skip
def test_another_tokenizer_differs(change: Change, tmp_path: Path) -> None:
    """Everything that decides ids is part of the value."""
    assert fingerprint(folder(tmp_path / "b", change)) != fingerprint(folder(tmp_path / "a"))


def test_the_installed_library_rewrites_to_the_same_fingerprint(tmp_path: Path) -> None:
    """What the tokenizers library makes of an old file is still the same tokenizer."""
    old = folder(tmp_path / "old", old_library)
    new = tmp_path / "new"
    new.mkdir()
    Tokenizer.from_file(str(old / "tokenizer.json")).save(str(new / "tokenizer.json"))
    assert read_tokenizer(new) == read_tokenizer(old)


def test_the_value_is_fixed(tmp_path: Path) -> None:
    """Nodes and clouds of different builds must agree: a change here needs a new `FORM`."""
    found = read_tokenizer(folder(tmp_path / "a"))
    assert found == ("6a59d56fbd7e8b918141e84ec699d6aea676140e81a28fff141d7cc17461d626", 6)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True},
            {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
        ),
        (
            {"type": "Metaspace", "replacement": "▁", "add_prefix_space": False},
            {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": True},
        ),
        (
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        ),
    ],
)
def test_settings_that_later_versions_added_have_their_old_value(old: Any, new: Any, tmp_path: Path) -> None:
    """A setting that is missing means what it meant before it existed."""
    before = folder(tmp_path / "a", lambda data: data.update(pre_tokenizer=old))
    after = folder(tmp_path / "b", lambda data: data.update(pre_tokenizer=new))
    assert fingerprint(before) == fingerprint(after)


def test_unigram_scores_count(tmp_path: Path) -> None:
    """A Unigram model's vocabulary is a list of pieces with scores."""
    one = folder(tmp_path / "a", lambda data: data.update(model=_unigram(-1.0)))
    two = folder(tmp_path / "b", lambda data: data.update(model=_unigram(-2.0)))
    assert fingerprint(one) != fingerprint(two)
    assert vocabulary(one) == 6


def _unigram(score: float) -> dict[str, Any]:
    return {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", score]]}


def test_other_tokenizer_files_are_named(tmp_path: Path) -> None:
    """The error says what is there, what is missing and how to get it."""
    (tmp_path / "tokenizer.model").write_bytes(b"")
    (tmp_path / "qwen.tiktoken").write_bytes(b"")
    with pytest.raises(ModelError, match=r"has tokenizer.model, qwen.tiktoken but no tokenizer.json.*AutoTokenizer"):
        fingerprint(tmp_path)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    """Also one that does not exist."""
    with pytest.raises(ModelError, match=r"has no tokenizer.json"):
        fingerprint(tmp_path)
    with pytest.raises(ModelError, match=r"has no tokenizer.json"):
        vocabulary(tmp_path / "missing")


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "{}", '{"model": {}}', '{"model": {"vocab": {}}}', '{"model": {"vocab": 3}}', "\x00", "[" * 99999,
     '{"model": {"vocab": {"a": 0, "b": 0}}}', '{"model": {"vocab": {"a": 0}, "merges": ["a b c"]}}'],
)  # fmt: skip
def test_unreadable_files_are_model_errors(text: str, tmp_path: Path) -> None:
    """Whatever stands in the file, the error is in words."""
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(ModelError, match=r"tokenizer.json"):
        fingerprint(tmp_path)


@pytest.mark.pair
@pytest.mark.model
def test_the_qwen_pair_agrees_and_smollm2_differs() -> None:
    """The two Qwen2.5-Coder models may be paired; SmolLM2 may not."""
    from shared.models.resolve import resolve

    small, large, other = (
        read_tokenizer(Path(resolve(name))) for name in ("qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b", "smollm2-135m")
    )
    assert small == large
    assert small.vocabulary == 151665
    assert other.vocabulary == 49152
    assert other.fingerprint != small.fingerprint
