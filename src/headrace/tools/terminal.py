"""Console, progress bars and `--json` output of all command-line verbs."""

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
Endpoint = Annotated[str | None, typer.Option(help="Address of the store, if it is not the cloud's own.")]
Profile = Annotated[str | None, typer.Option(help="Profile of ~/.aws to sign requests with.")]

_NAMED_MOST = 5


def store_options(endpoint: str | None, profile: str | None) -> dict[str, str]:
    """Return the `store_options` of these options, without those not given."""
    given = {"endpoint": endpoint, "profile": profile}
    return {name: value for name, value in given.items() if value is not None}


def console_for(json: str | None) -> Console:
    """Return the console for people: standard error with `--json -`, otherwise standard output."""
    from rich.console import Console

    return Console(stderr=json == "-")


def say(console: Console, lines: Iterable[str], style: str | None = None) -> None:
    """Print lines without markup, highlighting or wrapping."""
    for line in lines:
        console.print(line, style=style, highlight=False, markup=False, soft_wrap=True)


def some(texts: Sequence[str]) -> str:
    """Join the first few texts and add the number of omitted ones."""
    more = f", and {len(texts) - _NAMED_MOST:,} more" if len(texts) > _NAMED_MOST else ""
    return ", ".join(texts[:_NAMED_MOST]) + more


def track(items: Iterable[T], what: str, total: int, console: Console) -> Iterator[T]:
    """Yield `items` and show a progress bar over `total` if the console is a terminal."""
    from rich.progress import track

    return iter(track(items, what, total=total, console=console, transient=True, disable=not console.is_terminal))


@contextmanager
def byte_progress(console: Console, what: str) -> Iterator[Callable[[str, int, int | None], None]]:
    """Show a progress bar of bytes; yield a function that sets its text, bytes done, and total bytes."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    hidden = not console.is_terminal
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=hidden) as progress:
        bar = progress.add_task(what, total=None)
        yield lambda text, done, total: progress.update(bar, description=text, completed=done, total=total)


def write_json(where: str | None, document: dict[str, Any]) -> None:
    """Write the document to the `--json` destination. Raises HeadraceError if that file cannot be written."""
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
