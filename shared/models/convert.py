"""Turn one GGUF file into a folder that vLLM and transformers load: `python -m shared.models.convert FILE FOLDER`.

Run in a child process: it loads torch, and its memory (about three times the model) goes back when it ends.
"""

import json
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

# GGUF keeps the name of a tokenizer's text splitting, not the splitting itself, and the reader in
# transformers leaves some of it out. These are the original tokenizers' values, so that a converted
# tokenizer has the fingerprint of the published one.
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_PIPELINES: dict[str, dict[str, Any]] = {
    "smollm": {
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL],
        }
    },
    "qwen2": {"normalizer": {"type": "NFC"}},
}
_PADDING_ROW = re.compile(r"\[PAD\d+\]")
_END_TOKENS = ("<|im_end|>", "<|endoftext|>")


def _without_padding_rows(vocab: dict[str, int]) -> dict[str, int]:
    """Drop the names that GGUF gives to rows which only pad the embedding matrix: no text makes them."""
    return {token: index for token, index in vocab.items() if not _PADDING_ROW.fullmatch(token)}


def _repair_tokenizer(folder: Path, splitting: str, context: int) -> None:
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    tokenizer["model"]["vocab"] = _without_padding_rows(tokenizer["model"]["vocab"])
    tokenizer.update(_PIPELINES.get(splitting, {}))
    path.write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    settings["model_max_length"] = context
    for key in ("is_local", "local_files_only"):
        settings.pop(key, None)
    path.write_text(json.dumps(settings, ensure_ascii=False, indent=2), encoding="utf-8")


def _string_field(reader: Any, key: str) -> str:
    field = reader.get_field(key)
    return str(field.contents()) if field is not None else ""


def convert(gguf_file: Path, folder: Path) -> None:
    """Write weights (bfloat16 safetensors), config, tokenizer and chat template of `gguf_file` into `folder`.

    `folder` must exist; the caller owns making it appear whole (by a rename) and removing it after an error.
    """
    import torch
    from gguf import GGUFReader
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": str(gguf_file.parent), "gguf_file": gguf_file.name}
    splitting = _string_field(GGUFReader(gguf_file), "tokenizer.ggml.pre")
    tokenizer = AutoTokenizer.from_pretrained(**source)
    if not tokenizer.chat_template:
        raise ValueError("the file has no chat template")
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.bfloat16)

    config = model.config
    tied = bool(config.tie_word_embeddings)
    state = {
        name: tensor.detach().to(torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items()
        if not (tied and name == "lm_head.weight")
    }
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})

    vocab = tokenizer.get_vocab()
    end_ids = [vocab[token] for token in _END_TOKENS if token in vocab]
    if tokenizer.eos_token_id not in end_ids:
        end_ids.insert(0, tokenizer.eos_token_id)
    settings = config.to_dict()
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        settings.pop(key, None)
    settings.update(
        architectures=[type(model).__name__],
        dtype="bfloat16",
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=tokenizer.bos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    _write_json(folder / "config.json", settings)
    _write_json(
        folder / "generation_config.json",
        {
            "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": end_ids,
            "pad_token_id": tokenizer.pad_token_id,
        },
    )
    tokenizer.save_pretrained(folder)
    _repair_tokenizer(folder, splitting, int(config.max_position_embeddings))


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, default=str), encoding="utf-8")


def main() -> int:
    """Run `convert` on the two command-line arguments; 0, or 1 with one line on stderr."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TQDM_DISABLE", "1")
    warnings.simplefilter("ignore")
    gguf_file, folder = (Path(argument) for argument in sys.argv[1:3])
    try:
        convert(gguf_file, folder)
    except Exception as error:
        # The parent turns this line into a ModelError; the full traceback would bury it.
        if os.environ.get("NEXUS_TRACEBACK") == "1":
            raise
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
