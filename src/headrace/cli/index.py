"""`headrace index`: builds the indices that an opening would otherwise build while training waits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.errors import HeadraceError
from headrace.tools.terminal import Json, console_for, write_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from headrace.data.sources.index_building import Indexed, Outcome

_THREADS = 8  # scanning waits for the disk, not for the processor

Paths = Annotated[list[str], typer.Argument(help="Tars, zips, patterns such as 'train-{000..009}.tar', or folders.")]
Cache = Annotated[Path | None, typer.Option(help="Folder to keep them in. Default: beside each file.")]
Threads = Annotated[int, typer.Option(min=1, help="Files scanned side by side.")]


def index(paths: Paths, *, cache: Cache = None, threads: Threads = _THREADS, json: Json = None) -> None:
    """Build the indices of archives ahead of training. What is there already is left alone."""
    from headrace.data.sources.index_building import NotIndexed, build_indices, indexable_paths

    console = console_for(json)
    files = indexable_paths(paths)
    with _progress(len(files), console) as tick:
        outcomes = build_indices(
            files, cache=None if cache is None else str(cache.absolute()), threads=threads, tick=tick
        )
    for line in lines(outcomes):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if json is not None:
        write_json(json, document(outcomes))
    failed = [outcome for outcome in outcomes if isinstance(outcome, NotIndexed)]
    if failed:
        raise HeadraceError(f"{len(failed):,} of {len(outcomes):,} files could not be indexed: {failed[0].error}")


def lines(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """One a file, and for several one of all."""
    from rich.filesize import decimal

    from headrace.data.sources.index_building import Indexed

    for outcome in outcomes:
        if not isinstance(outcome, Indexed):
            yield f"{outcome.path}: failed: {outcome.error}"
            continue
        samples = "" if outcome.samples is None else f"{outcome.samples:,} samples, "
        yield (
            f"{outcome.path}: {_what(outcome)}, {outcome.members:,} members, {samples}{decimal(outcome.bytes)}"
            + ("" if outcome.kept_at is None else f": {outcome.kept_at}")
        )
    found = [outcome for outcome in outcomes if isinstance(outcome, Indexed)]
    if len(outcomes) > 1:
        members, size = sum(one.members for one in found), sum(one.bytes for one in found)
        built, none = sum(one.built for one in found), sum(one.kept_at is None for one in found)
        needless = f"{none:,} too small to need one, " if none else ""
        yield (
            f"{len(outcomes):,} files: {built:,} built, {len(found) - built - none:,} already there, {needless}"
            f"{len(outcomes) - len(found):,} failed; {members:,} members, {decimal(size)}"
        )


def document(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """As JSON has it."""
    from headrace.data.sources.index_building import Indexed

    return {
        "files": [
            asdict(outcome) if isinstance(outcome, Indexed) else {"path": outcome.path, "error": str(outcome.error)}
            for outcome in outcomes
        ]
    }


def _what(indexed: Indexed) -> str:
    if indexed.kept_at is None:
        return "no index needed"
    if not indexed.built:
        return "already there"
    return f"built in {indexed.wall_s:.2f} s ({indexed.members / indexed.wall_s:,.0f} members/s)"


@contextmanager
def _progress(total: int, console: Console) -> Iterator[Callable[[Sequence[Outcome]], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("Indexing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=total)
        yield lambda outcomes: progress.update(bar, completed=len(outcomes))
