"""Console, progress bars and `--json`, which all verbs share."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from rich.console import Console


T = TypeVar("T")

Json = Annotated[str | None, typer.Option("--json", help="Write the figures to this file; - for standard output.")]


def console_for(json: str | None) -> Console:
    """Where people read; with `--json -` standard output is for machines."""
    from rich.console import Console

    return Console(stderr=json == "-")


def track(items: Iterable[T], what: str, total: int, console: Console) -> Iterator[T]:
    """`items`, with a bar of how many of `total` have come, where somebody can see it."""
    from rich.progress import track

    return iter(track(items, what, total=total, console=console, transient=True, disable=not console.is_terminal))


def write_json(where: str, document: dict[str, Any]) -> None:
    """Raises HeadraceError if the file `where` (`-`: standard output) cannot be written."""
    import json

    text = json.dumps(document, indent=2) + "\n"
    if where == "-":
        sys.stdout.write(text)
        return
    try:
        Path(where).write_text(text)
    except OSError as error:
        raise HeadraceError(f"--json: expected a file to write, got {where} ({error.strerror})") from error
