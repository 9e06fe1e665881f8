"""What a model's chat template tells it: of tools, and in which form to call them; how much to reason."""

import json
from pathlib import Path

import msgspec

HERMES_PARSER = "nexus_hermes"
"""Name of `cloud.verifier.engine.tool_parser`."""


class _Named(msgspec.Struct):
    name: str
    template: str


class _TokenizerConfig(msgspec.Struct):
    chat_template: str | list[_Named] | None = None


def read_template(folder: Path) -> str:
    """The chat template of a model folder; empty when it has none that can be read."""
    try:
        return (folder / "chat_template.jinja").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        pass
    try:
        config = msgspec.json.decode((folder / "tokenizer_config.json").read_bytes(), type=_TokenizerConfig)
    except (OSError, msgspec.DecodeError):
        return ""
    if not isinstance(config.chat_template, list):
        return config.chat_template or ""
    return "\n".join(each.template for each in config.chat_template)


def tells_of_tools(template: str) -> bool:
    """Whether the model sees the tools of a request."""
    return "tools" in template


def tells_of_effort(template: str) -> bool:
    """Whether `reasoning_effort` changes the prompt; vLLM passes it on under both names."""
    return "reasoning_effort" in template or "enable_thinking" in template


def tool_parser(template: str) -> str | None:
    """The parser for calls as the template asks for them; none when it asks for no form that is surely known.

    Hermes, Qwen2.5 and Qwen3 write a JSON object with name and arguments between tags.
    """
    asks = "<tool_call>" in template and json.dumps("arguments") in template.replace("\\", "")
    return HERMES_PARSER if tells_of_tools(template) and asks and "<function=" not in template else None
