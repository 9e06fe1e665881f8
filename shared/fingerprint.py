"""Fingerprint of a tokenizer: a draft and a target model may be paired when theirs agree.

SHA-256 over a canonical form of what decides which ids a text becomes: id to token, merges (or scores), added
and special tokens, normaliser and pre-tokeniser. Left out of `tokenizer.json`, since ids are exchanged after
tokenization and before decoding: padding and truncation (settings of a batch), the post-processor (adds
begin and end tokens to a prompt, which only the target's side does) and the decoder (id to text: only the
gateway's answers need it). Plain JSON is read instead of the `tokenizers` library, so that the value does not
depend on the library's version; the forms that its versions write differently are brought to one.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, Final, NamedTuple

from shared.errors import ModelError

FORM: Final = "nexus-tokenizer-1"
"""Hashed first; changes whenever the canonical form does, so that values of two forms never agree."""

_OTHER_FILES: Final = ("tokenizer.model", "vocab.json", "merges.txt", "vocab.txt", "spiece.model")

_DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "ByteLevel": {"use_regex": True},
    "Metaspace": {"prepend_scheme": "always", "split": True},
}
"""Values that older library versions did not write because there was no choice yet."""

_UNUSED: Final[dict[str, frozenset[str]]] = {
    "ByteLevel": frozenset({"trim_offsets"}),
    "Metaspace": frozenset({"add_prefix_space", "str_rep"}),
}
"""Settings that change character offsets only, or that a newer one in the same part has replaced."""


class Tokenizer(NamedTuple):
    """What Nexus needs to know of a model's tokenizer."""

    fingerprint: str
    """64 hexadecimal digits."""
    vocabulary: int
    """Number of real ids: the largest id of vocabulary and added tokens, plus one."""


def read_tokenizer(folder: Path) -> Tokenizer:
    """Read `tokenizer.json` in a model folder.

    Raises `ModelError`, naming what is missing, when there is none or it cannot be read.
    """
    data = _load(folder)
    try:
        tokens = _tokens(data)
        form = _canonical(data, tokens)
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise ModelError(
            f"tokenizer.json in {folder} has no form that Nexus knows ({type(exc).__name__}: {exc})."
        ) from exc
    if not tokens:
        raise ModelError(f"tokenizer.json in {folder} has an empty vocabulary.")
    text = json.dumps(form, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return Tokenizer(hashlib.sha256(text.encode()).hexdigest(), max(tokens) + 1)


def fingerprint(folder: Path) -> str:
    """The fingerprint alone; see `read_tokenizer`."""
    return read_tokenizer(folder).fingerprint


def vocabulary(folder: Path) -> int:
    """The number of real ids alone; see `read_tokenizer`."""
    return read_tokenizer(folder).vocabulary


def _load(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer.json"
    if not path.is_file():
        others = [name for name in _OTHER_FILES if (folder / name).is_file()]
        others += sorted(file.name for file in folder.glob("*.tiktoken")) if folder.is_dir() else []
        if others:
            raise ModelError(
                f"{folder} has {', '.join(others)} but no tokenizer.json, which Nexus reads. Load the "
                "tokenizer with transformers' AutoTokenizer and save it with save_pretrained to get one."
            )
        raise ModelError(f"{folder} has no tokenizer.json. Give the folder of a complete model.")
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as exc:
        raise ModelError(f"tokenizer.json in {folder} cannot be read: {exc}.") from exc
    if not isinstance(data, dict):
        raise ModelError(f"tokenizer.json in {folder} is no JSON object.")
    return data


def _tokens(data: dict[str, Any]) -> dict[int, str]:
    """Id to token. Without `[PAD<id>]` rows: GGUF files name the rows that pad the embedding so."""
    vocab = data["model"]["vocab"]
    if isinstance(vocab, dict):
        tokens = {int(index): str(token) for token, index in vocab.items()}
        if len(tokens) != len(vocab):
            raise ValueError("two tokens share an id")
    else:
        tokens = {index: str(piece) for index, (piece, _) in enumerate(vocab)}
    for added in data.get("added_tokens") or []:
        tokens[int(added["id"])] = str(added["content"])
    return {index: token for index, token in tokens.items() if not _is_padding(index, token)}


def _is_padding(index: int, token: str) -> bool:
    return token == f"[PAD{index}]"


def _canonical(data: dict[str, Any], tokens: dict[int, str]) -> dict[str, Any]:
    model = data["model"]
    kind = model.get("type") or ("BPE" if "merges" in model else "WordPiece")
    settings = {
        key: value
        for key, value in model.items()
        if key not in ("type", "vocab", "merges") and not (value is None or value is False or value == "")
    }
    scores = model["vocab"] if not isinstance(model["vocab"], dict) else []
    return {
        "form": FORM,
        "kind": kind,
        "tokens": sorted(tokens.items()),
        "scores": [float(score) for _, score in scores],
        "merges": [_pair(merge) for merge in model.get("merges") or []],
        "settings": settings,
        "added": sorted(
            (_added(token) for token in data.get("added_tokens") or [] if int(token["id"]) in tokens),
            key=lambda token: token["id"],
        ),
        "normalizer": _part(data.get("normalizer")),
        "pre_tokenizer": _part(data.get("pre_tokenizer")),
    }


def _pair(merge: str | list[str]) -> list[str]:
    """Merges are `"a b"` in files of tokenizers before 0.20 and `["a", "b"]` after."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return [left, right]


def _added(token: dict[str, Any]) -> dict[str, Any]:
    special = bool(token.get("special", False))
    return {
        "id": int(token["id"]),
        "content": str(token["content"]),
        "special": special,
        "normalized": bool(token.get("normalized", not special)),
        **{key: bool(token.get(key, False)) for key in ("single_word", "lstrip", "rstrip")},
    }


def _part(part: Any) -> Any:
    """A normaliser or pre-tokeniser with its defaults written out; a sequence of one part is that part."""
    if isinstance(part, list):
        return [_part(item) for item in part]
    if not isinstance(part, dict):
        return part
    kind = part.get("type")
    if kind == "Sequence":
        members = [_part(item) for key in ("pretokenizers", "normalizers") for item in part.get(key, [])]
        return members[0] if len(members) == 1 else {"type": kind, "members": members}
    filled = dict(part)
    if kind == "Metaspace" and "prepend_scheme" not in part and part.get("add_prefix_space") is False:
        filled["prepend_scheme"] = "never"
    filled = {**_DEFAULTS.get(str(kind), {}), **filled}
    return {key: value for key, value in filled.items() if key not in _UNUSED.get(str(kind), ())}
