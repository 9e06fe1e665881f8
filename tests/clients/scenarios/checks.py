"""What every Python scenario uses: where the gateway is, checks that are run in order, and what they report.

Standard library only, as it runs in the environments of the clients. A check is a function that asserts; `Skipped` says
that something is not served. For each, one line of JSON goes to standard output.
"""

import asyncio
import inspect
import json
import os
import sys
import time
import traceback
import urllib.request

URL = os.environ["NEXUS_URL"]
"""Ends with /v1."""
KEY = os.environ["NEXUS_API_KEY"]
LIMITED_KEY = os.environ["NEXUS_LIMITED_KEY"]
"""May have one choice generated at once."""
MODEL = os.environ["NEXUS_MODEL"]
TOKENIZER = os.environ.get("NEXUS_TOKENIZER", "")
"""The model's folder, for clients that count tokens."""
SWITCH = os.environ["NEXUS_SWITCH"]
QUESTION = [{"role": "user", "content": "Name three colours of the sea."}]
_checks = []


class Skipped(Exception):
    """This deployment does not serve what the check is about."""


def check(function):
    """Add a function, plain or async, to those that `main` runs; its docstring's first line is its name."""
    _checks.append(function)
    return function


def fail_next(how, times=1):
    """Spoil the next generations behind the gateway: `503`, `500` or `cut`."""
    body = json.dumps({"fail": how, "times": times}).encode()
    with urllib.request.urlopen(urllib.request.Request(SWITCH, body, {"content-type": "application/json"})):
        pass


def counts():
    """What the gateway has asked of the verifier so far."""
    with urllib.request.urlopen(SWITCH) as answer:
        return json.load(answer)


def wait_for(holds, timeout_s=30.0):
    """Poll until `holds()`; it fails the check when that does not come."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def served(parameter):
    """Skip the check unless the model's card lists `parameter`."""
    request = urllib.request.Request(f"{URL}/models/{MODEL}", headers={"authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request) as answer:
        if parameter not in json.load(answer)["supported_parameters"]:
            raise Skipped(f"the gateway does not serve `{parameter}`")


def raises(kind, function, *args, **kwargs):
    """The exception of exactly this class, or a subclass of it, that a call raises."""
    try:
        function(*args, **kwargs)
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__} was raised")


def main():
    """Run all checks; the exit status is 1 when one fails."""
    failed = False
    for function in _checks:
        began = time.monotonic()
        told = {"check": (function.__doc__ or function.__name__).strip().splitlines()[0].rstrip(".")}
        try:
            if inspect.iscoroutinefunction(function):
                asyncio.run(function())
            else:
                function()
            told["result"] = "passed"
        except Skipped as reason:
            told |= {"result": "skipped", "why": str(reason)}
        except Exception:
            failed = True
            told |= {"result": "failed", "why": traceback.format_exc()}
        told["s"] = round(time.monotonic() - began, 2)
        print(json.dumps(told), flush=True)
    sys.exit(failed)
