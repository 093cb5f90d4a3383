"""Console, progress bars and `--json`, which all verbs share."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

T = TypeVar("T")

Json = Annotated[str | None, typer.Option("--json", help="Write the figures to this file; - for standard output.")]

_NAMED_MOST = 5


def console_for(json: str | None) -> Console:
    """Return the console that people read; with `--json -` standard output is for machines."""
    from rich.console import Console

    return Console(stderr=json == "-")


def say(console: Console, lines: Iterable[str], style: str | None = None) -> None:
    """Print lines as they are."""
    for line in lines:
        console.print(line, style=style, highlight=False, markup=False, soft_wrap=True)


def some(texts: Sequence[str]) -> str:
    """Name the first few, and say how many more there are."""
    more = f", and {len(texts) - _NAMED_MOST:,} more" if len(texts) > _NAMED_MOST else ""
    return ", ".join(texts[:_NAMED_MOST]) + more


def track(items: Iterable[T], what: str, total: int, console: Console) -> Iterator[T]:
    """Yield `items`, with a bar of how many of `total` have come, where somebody can see it."""
    from rich.progress import track

    return iter(track(items, what, total=total, console=console, transient=True, disable=not console.is_terminal))


@contextmanager
def byte_progress(console: Console, what: str) -> Iterator[Callable[[str, int, int | None], None]]:
    """Show a bar of bytes, and give a function that sets its text, the bytes done, and of how many."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    hidden = not console.is_terminal
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=hidden) as progress:
        bar = progress.add_task(what, total=None)
        yield lambda text, done, total: progress.update(bar, description=text, completed=done, total=total)


def write_json(where: str | None, document: dict[str, Any]) -> None:
    """Write the figures where `--json` says. Raises HeadraceError if that file cannot be written."""
    import json

    if where is None:
        return
    text = json.dumps(document, indent=2) + "\n"
    if where == "-":
        sys.stdout.write(text)
        return
    try:
        Path(where).write_text(text)
    except OSError as error:
        raise HeadraceError(f"--json: expected a file to write, got {where} ({error.strerror})") from error
