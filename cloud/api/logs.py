"""Structured logs on standard error. Prompts, answers and keys are never logged."""

import logging
import sys
from typing import Literal

import structlog
import structlog.tracebacks
from structlog.typing import Processor

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["text", "json"]

# Local variables of a failing function hold prompts and keys; structlog's defaults would print them.
_tracebacks = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)


def configure(level: Level, style: Format) -> None:
    """Set up structlog, and send the standard library's records (uvicorn's among them) the same way."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    final: list[Processor] = (
        [structlog.processors.ExceptionRenderer(_tracebacks), structlog.processors.JSONRenderer()]
        if style == "json"
        else [
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)
        ]
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *final],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):  # an earlier server in this process may have taken them
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    logging.getLogger("httpcore2").setLevel(logging.WARNING)
