"""`headrace stage` and `headrace unstage`: copies of datasets in memory or on a local disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.errors import HeadraceError
from headrace.tools.terminal import Json, console_for, write_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from headrace.data.staging import Report

Sources = Annotated[list[str], typer.Argument(help="Folders, files, or patterns such as 'train-{000..009}.tar'.")]
To = Annotated[Path, typer.Argument(help="The folder for the copies, such as /dev/shm/train; made if it is missing.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Parts copied side by side. Default: the cores available.")]
Verify = Annotated[bool, typer.Option("--verify", help="Read what is there already, too, and repair it.")]
Reserve = Annotated[str | None, typer.Option(help="Memory, or space on the disk, to leave to runs: 8GB.")]
Force = Annotated[bool, typer.Option("--force", help="Remove copies that were written since, too.")]


def stage(
    sources: Sources,
    to: To,
    *,
    threads: Threads = None,
    verify: Verify = False,
    reserve: Reserve = None,
    json: Json = None,
) -> None:
    """Copy datasets to memory (/dev/shm) or a local disk. Run it again if it was broken off: what is complete stays."""
    from headrace.data.staging import sources_of
    from headrace.data.staging import stage as stage_sources
    from headrace.data.storage.paths import resolve
    from headrace.stage.summary import staged_lines

    console = console_for(json)
    found = sources_of([path for source in sources for path in resolve(source)])
    with _progress(console) as tick:
        report = stage_sources(
            found,
            to=str(to),
            threads=threads,
            verify=verify,
            reserve_bytes=None if reserve is None else _bytes(reserve),
            tick=tick,
        )
    for line in staged_lines(report, found):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if json is not None:
        write_json(json, report.document())


def unstage(to: To, *, force: Force = False, json: Json = None) -> None:
    """Remove what `headrace stage` has copied there, and nothing else."""
    from headrace.data.staging import unstage as unstage_folder
    from headrace.stage.summary import unstaged_lines

    console = console_for(json)
    report = unstage_folder(str(to), force=force)
    for line in unstaged_lines(report):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if json is not None:
        write_json(json, report.document())
    if report.left:
        raise HeadraceError(f"{report.to}: {len(report.left):,} files were left. Remove them, too: --force")


def _bytes(text: str) -> int:
    from headrace.cache.spec import parse_size

    return 0 if text == "0" else parse_size(text, text, "--reserve")


@contextmanager
def _progress(console: Console) -> Iterator[Callable[[Report], None]]:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    hidden = not console.is_terminal
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=hidden) as progress:
        bar = progress.add_task("Staging", total=None)

        def tick(report: Report) -> None:
            verifying = not report.kept and report.verified is not None
            progress.update(
                bar,
                description="Reading what is there" if verifying else "Staging",
                completed=report.verified_bytes if verifying else report.copied_bytes + report.kept_bytes,
                total=report.total_bytes,
            )

        yield tick
