"""The `llm` command and its Python side, told of the gateway by its file of extra OpenAI models."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

_folder = Path(tempfile.mkdtemp(prefix="llm"))
os.environ["LLM_USER_PATH"] = str(_folder)

from checks import KEY, MODEL, URL, check, counts, fail_next, main, raises  # noqa: E402

(_folder / "extra-openai-models.yaml").write_text(
    f"- model_id: nexus\n  model_name: {MODEL}\n  api_base: {URL}\n  api_key_name: nexus\n"
    f"  supports_schema: true\n"
    f"- model_id: nexus-text\n  model_name: {MODEL}\n  api_base: {URL}\n  api_key_name: nexus\n  completion: true\n"
)
import llm  # noqa: E402
import openai  # noqa: E402

PROMPT = "Name three colours of the sea."
LIMITS = ("-o", "temperature", "0", "-o", "max_tokens", "24")


def command(*arguments, expect=0):
    """What `llm` prints, and on standard error."""
    argv = [str(Path(sys.executable).with_name("llm")), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout, done.stderr


@check
def set_up():
    """The key is stored, and the models are listed"""
    command("keys", "set", "nexus", "--value", KEY)
    assert "nexus" in command("models")[0]


@check
def prompts():
    """A prompt, streamed and whole, gives the same text"""
    streamed = command("-m", "nexus", PROMPT, *LIMITS)[0]
    assert streamed.strip() and streamed == command("-m", "nexus", PROMPT, *LIMITS, "--no-stream")[0]


@check
def usage():
    """Usage is shown and logged"""
    told = command("-m", "nexus", PROMPT, *LIMITS, "--usage")[1]
    assert "Token usage:" in told and "input" in told and "output" in told


@check
def conversation():
    """A conversation goes on"""
    assert command("-c", "And of the sky?", *LIMITS)[0].strip()


@check
def completions():
    """A model that completes text"""
    assert command("-m", "nexus-text", "The capital of France is", *LIMITS)[0].strip()


@check
def schema():
    """An answer by a schema"""
    import json

    text = command("-m", "nexus", "A city, as JSON.", "--schema", "name, size int", "-o", "max_tokens", "200")[0]
    told = json.loads(text)
    assert isinstance(told["name"], str) and isinstance(told["size"], int)


@check
def library():
    """The Python side: text, usage, and the client's own errors"""
    model = llm.get_model("nexus")
    model.key = KEY
    answer = model.prompt(PROMPT, temperature=0, max_tokens=24)
    assert answer.text() and answer.usage().output > 0
    assert "".join(model.prompt(PROMPT, temperature=0, max_tokens=24)) == answer.text()
    raises(openai.BadRequestError, lambda: model.prompt(PROMPT, top_p=1, max_tokens=5000).text())


@check
def errors():
    """A refusal is told in our words, and the exit status is 1"""
    assert "context" in command("-m", "nexus", "word " * 3000, expect=1)[1]
    assert "API key" in command("-m", "nexus", PROMPT, "--key", "wrong-key", expect=1)[1]


@check
def retries():
    """503 is retried"""
    before = counts()["generations"]
    fail_next("503")
    assert command("-m", "nexus", PROMPT, *LIMITS, "-o", "seed", "905")[0].strip()
    assert counts()["generations"] - before == 2


main()
