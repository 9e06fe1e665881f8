"""What the agent tells the person who started it: one plain line per change, or JSON lines for machines."""

import logging
import sys
from collections.abc import MutableMapping
from enum import StrEnum
from typing import Any, TextIO

import structlog

Log = structlog.stdlib.BoundLogger


class LogFormat(StrEnum):
    """How lines look."""

    TEXT = "text"
    JSON = "json"


def _plain(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
    """`12:34:56  The sentence.`; the fields are in the sentence already."""
    level = str(event.get("level", "info"))
    mark = "" if level in ("debug", "info") else f"{level}: "
    return f"{event['time']}  {mark}{event.get('message', event['event'])}"


def make_log(format: LogFormat, *, stream: TextIO | None = None, verbose: bool = False) -> Log:
    """A logger whose calls are `log.info("code", message="Sentence.", field=…)`.

    JSON lines hold time (UTC), level, event, message and the fields; text lines hold the sentence.
    """
    level = logging.DEBUG if verbose else logging.INFO
    shared: list[structlog.typing.Processor] = [structlog.processors.add_log_level]
    if format is LogFormat.JSON:
        shared += [
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.JSONRenderer(ensure_ascii=False),
        ]
    else:
        shared += [structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False, key="time"), _plain]
    log: Log = structlog.wrap_logger(
        structlog.PrintLogger(stream or sys.stderr),
        processors=shared,
        wrapper_class=structlog.make_filtering_bound_logger(level),
    )
    return log
