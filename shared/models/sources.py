"""Which of a model's sources to try in this run, and in which order."""

import functools
import os
import threading

import httpx2

from shared.errors import ConfigError
from shared.models.catalogue import Entry, HubSource, Source

SETTING = "NEXUS_MODEL_SOURCES"
_KINDS = ("hub", "pypi")
_PROBE_LIMIT_S = 3.0


def kind_of(source: Source) -> str:
    """The source's name in settings and records."""
    return "hub" if isinstance(source, HubSource) else "pypi"


def allowed_kinds() -> tuple[str, ...]:
    """What `NEXUS_MODEL_SOURCES` leaves; everything when it is not set."""
    text = os.environ.get(SETTING, "").strip()
    if not text:
        return _KINDS
    chosen = tuple(part.strip() for part in text.split(",") if part.strip())
    unknown = [kind for kind in chosen if kind not in _KINDS]
    if unknown or not chosen:
        raise ConfigError(f"{SETTING} is {text!r}: use hub, pypi, or both with a comma.", param=SETTING)
    return chosen


def candidates(entry: Entry) -> list[Source]:
    """The entry's sources in the catalogue's order, without those that are switched off."""
    kinds = allowed_kinds()
    return [source for source in entry.sources if kind_of(source) in kinds]


def hub_endpoint() -> str:
    """The model hub's address; `HF_ENDPOINT` names a mirror, as for every client of the hub."""
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


@functools.cache
def hub_answers() -> bool:
    """Whether the hub can be reached, asked once per run and given about three seconds.

    The hub's own client retries an unreachable host for 23 s per file. The limit also covers name
    resolution, which no client's timeout does: hence the thread.
    """
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        return False
    answered = threading.Event()
    finished = threading.Event()

    def probe() -> None:
        try:
            if httpx2.get(f"{hub_endpoint()}/api/models?limit=1", timeout=_PROBE_LIMIT_S).is_success:
                answered.set()
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError):
            pass
        finally:
            finished.set()

    threading.Thread(target=probe, name="hub-probe", daemon=True).start()
    finished.wait(_PROBE_LIMIT_S)
    return answered.is_set()
