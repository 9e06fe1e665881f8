"""llm-comply holds answers and chunks against the copy of OpenAI's specification that it brings along."""

import functools
import json
import subprocess
import sys
from pathlib import Path

from checks import KEY, MODEL, URL, Skipped, check, main, served

COMMAND = str(Path(sys.executable).with_name("llm-comply"))
LENGTH = "finish_reason: expected 'stop', got 'length'"
"""How much a small model says is not what is judged."""
ABSENT = {
    "chat-image-input": "the model reads text only",
    "chat-reasoning-summary": "the model does not reason",
}


@functools.cache
def results():
    """What llm-comply says of each of its cases, by id."""
    argv = [COMMAND, "run", "-u", URL, "-k", KEY, "-m", MODEL, "--format", "openai-chat", "--json", "-i", LENGTH]
    done = subprocess.run([*argv, "--timeout", "240"], capture_output=True, text=True, timeout=900)
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    return {each["id"]: each for each in json.loads(done.stdout)["results"]}


def judged(name, rule):
    """A check that the case `name` passed."""

    def passed():
        if name in ABSENT:
            raise Skipped(ABSENT[name])
        result = results()[name]
        if name == "chat-tool-calling" and result["status"] != "passed":
            served("tools")
        assert result["status"] == "passed", result

    passed.__doc__ = rule
    check(passed)


@check
def complete():
    """Every case of llm-comply is known here"""
    assert set(results()) == set(RULES), set(results()) ^ set(RULES)


RULES = {
    "chat-basic-response": "A whole answer",
    "chat-system-prompt": "A system prompt",
    "chat-multi-turn": "Several turns",
    "chat-tool-calling": "A tool call",
    "chat-streaming-response": "A stream",
    "chat-streaming-usage": "A stream with usage",
    "chat-image-input": "An image",
    "chat-reasoning-summary": "A summary of reasoning",
    "chat-error-handling": "An error",
}
for _name, _rule in RULES.items():
    judged(_name, _rule)

if __name__ == "__main__":
    main()
