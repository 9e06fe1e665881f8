"""A running gateway as end-to-end tests see it."""

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx2
from openai import OpenAI
from support.servers import Server

API_KEY = "nx_end_to_end_key"


@dataclass
class Gateway:
    """A running `nexus gateway serve`."""

    url: str
    server: Server

    @property
    def client(self) -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", api_key=API_KEY, max_retries=0, timeout=240)

    @property
    def node_url(self) -> str:
        return self.url.replace("http", "ws") + "/v1/nodes/connect"

    def health(self) -> dict[str, Any]:
        return dict(httpx2.get(f"{self.url}/health", timeout=10).json())

    def metric(self, name: str, **labels: str) -> float:
        """Sum of a metric's samples whose labels include `labels`."""
        total = 0.0
        for line in httpx2.get(f"{self.url}/metrics", timeout=10).text.splitlines():
            found = re.match(rf"{name}(?:{{(.*)}})? (\S+)$", line)
            if found and all(f'{key}="{value}"' in (found[1] or "") for key, value in labels.items()):
                total += float(found[2])
        return total

    def wait(self, what: str, holds: Callable[[dict[str, Any]], bool], timeout_s: float = 120) -> None:
        deadline = time.monotonic() + timeout_s
        while not holds(health := self.health()):
            assert time.monotonic() < deadline, f"{what}: {health}\n{self.server.tail()}"
            time.sleep(0.1)


def nexus_figures(answer: Any) -> dict[str, Any]:
    """The `nexus` object of an answer of the official client."""
    return dict(json.loads(answer.model_dump_json())["nexus"])


Nodes = Callable[[], Server]
"""Starts one more draft node and waits until it is connected."""
