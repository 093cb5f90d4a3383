"""What is being tried, and how much is left: one line of a terminal, or a line an attempt where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


class ProveProgress:
    """Use it as a context; nothing of it stays on a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("headrace: trying {task.description}"),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> ProveProgress:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    @contextmanager
    def trying(self, what: str, *, expected_s: float, left_s: float) -> Iterator[None]:
        """While it is tried. `left_s` is the time that all proofs together may take from now on."""
        left = f"of about {expected_s:.0f} s; at most {left_s:.0f} s for all"
        if not self._console.is_terminal:
            self._console.print(f"headrace: trying {what}: {left}", highlight=False, soft_wrap=True)
        task = self._progress.add_task(what, total=expected_s, left=left)
        try:
            yield
        finally:
            self._progress.remove_task(task)
