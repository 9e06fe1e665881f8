"""What logs may hold."""

import logging

import pytest
import structlog
import uvicorn

from cloud.api import logs


@pytest.fixture(autouse=True)
def _restore():
    """Logging is the process's: put it back."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


@pytest.mark.parametrize("style", ["text", "json"])
def test_tracebacks_hold_no_local_variables(capsys, style):
    """A traceback names the places, not what was in the variables there: prompts and keys.

    Nor does it leave our format when a server has set up uvicorn's own loggers before.
    """
    uvicorn.Config("x:app").configure_logging()
    logs.configure("info", style)
    prompt = "the caller's " + "secret prompt"
    try:
        raise RuntimeError("broken" + prompt[:0])
    except RuntimeError as error:
        structlog.get_logger("x").error("failed", exc_info=error)
        logging.getLogger("uvicorn.error").error("also failed", exc_info=error)
    printed = capsys.readouterr().err
    assert printed.count("RuntimeError") >= 2 and "secret prompt" not in printed
