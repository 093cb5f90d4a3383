"""`headrace unpack`: archives to files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.tools.terminal import Json, console_for, write_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from headrace.tools.unpack import Report

    Tick = Callable[[Sequence[Report]], None]

Archives = Annotated[list[str], typer.Argument(help="Tars, compressed ones too, and zips; patterns too.")]
To = Annotated[Path, typer.Option(help="The folder to unpack into; made if it is missing.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Files written side by side. Default: the cores available.")]
Verify = Annotated[bool, typer.Option("--verify", help="Compare every file with the archive at the end.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that are there and differ.")]
SkipRefused = Annotated[bool, typer.Option("--skip-refused", help="Leave out members that must not be made.")]
Cache = Annotated[Path | None, typer.Option(help="Folder for the archives' indices. Default: beside each.")]


def unpack(
    archives: Archives,
    *,
    to: To = Path(),
    threads: Threads = None,
    verify: Verify = False,
    overwrite: Overwrite = False,
    skip_refused: SkipRefused = False,
    cache: Cache = None,
    json: Json = None,
) -> None:
    """Make the files that tars and zips hold. Run it again if it was broken off: what is complete is left alone."""
    from headrace.data.storage.paths import resolve
    from headrace.tools.unpack import unpack as unpack_archives
    from headrace.unpack.summary import summary

    console = console_for(json)
    with _progress(console, passes=2 if verify else 1) as tick:
        reports = unpack_archives(
            [path for archive in archives for path in resolve(archive)],
            to=to,
            threads=threads,
            overwrite=overwrite,
            skip_refused=skip_refused,
            verify=verify,
            cache=cache,
            tick=tick,
        )
    for line in summary(reports, str(to)):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if json is not None:
        write_json(json, {"to": str(to.absolute()), "archives": [report.document() for report in reports]})


@contextmanager
def _progress(console: Console, *, passes: int) -> Iterator[Tick]:
    """A bar of the bytes that are written, and in a second of `passes` compared; without a total while a compressed
    archive is among them, whose size nobody knows."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    hidden = not console.is_terminal
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=hidden) as progress:
        bar = progress.add_task("Unpacking", total=None)

        def tick(reports: Sequence[Report]) -> None:
            ended = sum(report.wall_s is not None for report in reports)
            totals = [report.total_bytes for report in reports]
            progress.update(
                bar,
                description=f"Unpacking {ended + 1} of {len(reports)}" if ended < len(reports) > 1 else "Unpacking",
                completed=sum(report.seen_bytes for report in reports),
                total=None if None in totals else passes * sum(total for total in totals if total is not None),
            )

        yield tick
