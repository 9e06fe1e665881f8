"""How a fetch shows its progress: a bar on a terminal, plain lines elsewhere, always on stderr."""

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn


def human_bytes(count: int) -> str:
    """Decimal units, as disks and downloads are sold: 98 MB, 1.3 GB."""
    if count >= 1_000_000_000:
        return f"{count / 1e9:.1f} GB"
    return f"{count / 1e6:.0f} MB" if count >= 1_000_000 else f"{max(1, round(count / 1e3))} kB"


class Reporter:
    """Says what is going on while a model is fetched."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)

    def say(self, text: str) -> None:
        """One line."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    @contextlib.contextmanager
    def bar(self, label: str, total: int) -> Iterator[Callable[[int], None]]:
        """A download of `total` bytes; call the yielded function with the bytes that are there so far."""
        if not self._console.is_terminal:
            self.say(f"{label} ({human_bytes(total)})")
            yield lambda done: None
            return
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self._console) as progress:
            task = progress.add_task(label, total=total)
            yield lambda done: progress.update(task, completed=min(done, total))
