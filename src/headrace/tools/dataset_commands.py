"""`headrace index`, `peek`, `stage`, `unstage` and `unpack`: verbs that work on datasets and archives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer
from rich.filesize import decimal

from headrace.data.staging.copying import StageReport, UnstageReport
from headrace.data.staging.source_files import StageSource
from headrace.errors import HeadraceError
from headrace.tools.terminal import Json, console_for, track, write_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from headrace.data import Dataset
    from headrace.data.sources.index_building import IndexedFile, IndexOutcome
    from headrace.tools.peek_page import PeekContent
    from headrace.views import View


# -- from cli/peek.py: `headrace peek`: a look at a data set before it is trained on.


class PeekView(StrEnum):
    """How the sheet's samples are cut."""

    train = "train"
    validate = "validate"
    whole = "whole"


Samples = Annotated[int, typer.Option(min=1, help="Samples to read, drawn at random where there are more.")]
Sheet = Annotated[int, typer.Option(min=1, help="Samples on the contact sheet.")]
PeekViewOption = Annotated[
    PeekView, typer.Option("--view", help="train: random crop and flip; validate: centre crop; whole.")
]
Size = Annotated[int, typer.Option(min=1, help="Height and width of the sheet's samples, in pixels.")]
PeekFolder = Annotated[Path, typer.Option(help="Folder for peek.png and peek.html.")]
Root = Annotated[Path | None, typer.Option(help="Folder or archive that a manifest's or annotations' paths begin in.")]
Columns = Annotated[str | None, typer.Option(help="Names for the columns of a manifest without a header: rgb,depth.")]


def peek(
    path: Annotated[str, typer.Argument(help="Whatever headrace.open takes: a folder, tars, a manifest, …")],
    *,
    image: Annotated[str, typer.Option(help="The column of images.")] = "image",
    root: Root = None,
    columns: Columns = None,
    view: PeekViewOption = PeekView.train,
    size: Size = 224,
    samples: Samples = 10_000,
    sheet: Sheet = 36,
    seed: Annotated[int, typer.Option(help="Which samples, and which crops.")] = 0,
    to: PeekFolder = Path(),
    json: Json = None,
) -> None:
    """Augmented samples on one sheet, and a page of sizes, classes, near-duplicates and samples that fail."""
    from headrace.data import open as open_dataset
    from headrace.tools.peek_page import (
        PeekContent,
        class_counts,
        document,
        duplicate_groups,
        picture_address,
        render,
        sheet_or_reason,
    )
    from headrace.tools.peek_survey import PeekSurvey, spread, survey

    console = console_for(json)
    dataset = open_dataset(path, root=root, columns=None if columns is None else columns.split(","))
    _check_images(dataset, image)
    positions = spread(len(dataset), samples, seed=seed).tolist()
    looks = list(track(survey(dataset, image, positions), "Reading samples", len(positions), console))
    picture, note = sheet_or_reason(dataset, image, _peek_views(view, size), samples=sheet, seed=seed)
    content = PeekContent(
        title=f"{dataset!r}",
        survey=PeekSurvey(len(dataset), looks),
        classes=class_counts(dataset),
        groups=duplicate_groups(dataset, image, looks),
        sheet=None if picture is None else picture_address(picture),
        sheet_view=" then ".join(repr(step) for step in _peek_views(view, size)),
        note=note,
    )
    if picture is not None:
        _write_page(to / "peek.png", lambda file: picture.save(file, "PNG"))
    page = render(content).encode()
    _write_page(to / "peek.html", lambda file: file.write(page))
    _peek_lines(console, content, to)
    if json is not None:
        write_json(json, document(content))


def _check_images(dataset: Dataset, column: str) -> None:
    """Raises NotFoundError if the column's files are all somewhere else."""
    readable = [name for name in dataset.columns if dataset.has_bytes(name)]
    if column not in readable:
        have = ", ".join(readable) or "none"
        raise typer.BadParameter(f"expected a column of files, got {column!r}; there is {have}", param_hint="--image")
    dataset.expect_files(column)


def _peek_views(recipe: PeekView, size: int) -> list[View]:
    from headrace.views import CenterCrop, Letterbox, RandomResizedCrop, Resize

    match recipe:
        case PeekView.train:
            return [RandomResizedCrop(size, flip=0.5)]
        case PeekView.validate:
            return [Resize(size * 8 // 7), CenterCrop(size)]  # 256 to 224, as ImageNet's models are validated
        case PeekView.whole:
            return [Letterbox((size, size))]


def _write_page(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """The file has its name once it is complete. Raises HeadraceError."""
    from headrace.data.storage.file_writing import UnwritableError, finish_partial_file, partial_file

    def fill(file: BinaryIO) -> None:
        write(file)

    place = str(path.absolute())
    try:
        with partial_file(place) as partial:
            finish_partial_file(partial, place, fill)
    except UnwritableError as error:
        raise HeadraceError(f"--to: expected a folder to write, got {path.parent} ({error})") from error


def _peek_lines(console: Console, content: PeekContent, to: Path) -> None:
    """The verdict first, then where to look."""
    survey = content.survey
    lines = [
        f"{len(survey.failures):,} of {len(survey.looks):,} samples read cannot be loaded",
        f"{sum(len(group.keys) - 1 for group in content.groups):,} look nearly like another",
        *([content.note] if content.note is not None else []),
        f"→ {to / 'peek.html'}" + ("" if content.sheet is None else f"  {to / 'peek.png'}"),
    ]
    console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)


# -- from cli/index.py: `headrace index`: builds the indices that an opening would otherwise build while training
# waits.


INDEX_THREADS = 8  # scanning waits for the disk, not for the processor

IndexPaths = Annotated[
    list[str], typer.Argument(help="Tars, zips, patterns such as 'train-{000..009}.tar', or folders.")
]
IndexCache = Annotated[Path | None, typer.Option(help="Folder to keep them in. Default: beside each file.")]
IndexThreads = Annotated[int, typer.Option(min=1, help="Files scanned side by side.")]


def index(
    paths: IndexPaths, *, cache: IndexCache = None, threads: IndexThreads = INDEX_THREADS, json: Json = None
) -> None:
    """Build the indices of archives ahead of training. What is there already is left alone."""
    from headrace.data.sources.index_building import UnindexedFile, build_indices, indexable_paths

    console = console_for(json)
    files = indexable_paths(paths)
    with _index_progress(len(files), console) as tick:
        outcomes = build_indices(
            files, cache=None if cache is None else str(cache.absolute()), threads=threads, tick=tick
        )
    for line in index_lines(outcomes):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if json is not None:
        write_json(json, index_document(outcomes))
    failed = [outcome for outcome in outcomes if isinstance(outcome, UnindexedFile)]
    if failed:
        raise HeadraceError(f"{len(failed):,} of {len(outcomes):,} files could not be indexed: {failed[0].error}")


def index_lines(outcomes: Sequence[IndexOutcome]) -> Iterator[str]:
    """One a file, and for several one of all."""
    from rich.filesize import decimal

    from headrace.data.sources.index_building import IndexedFile

    for outcome in outcomes:
        if not isinstance(outcome, IndexedFile):
            yield f"{outcome.path}: failed: {outcome.error}"
            continue
        samples = "" if outcome.samples is None else f"{outcome.samples:,} samples, "
        yield (
            f"{outcome.path}: {_index_outcome(outcome)}, {outcome.members:,} members, {samples}{decimal(outcome.bytes)}"
            + ("" if outcome.kept_at is None else f": {outcome.kept_at}")
        )
    found = [outcome for outcome in outcomes if isinstance(outcome, IndexedFile)]
    if len(outcomes) > 1:
        members, size = sum(one.members for one in found), sum(one.bytes for one in found)
        built, none = sum(one.built for one in found), sum(one.kept_at is None for one in found)
        needless = f"{none:,} too small to need one, " if none else ""
        yield (
            f"{len(outcomes):,} files: {built:,} built, {len(found) - built - none:,} already there, {needless}"
            f"{len(outcomes) - len(found):,} failed; {members:,} members, {decimal(size)}"
        )


def index_document(outcomes: Sequence[IndexOutcome]) -> dict[str, Any]:
    """As JSON has it."""
    from headrace.data.sources.index_building import IndexedFile

    return {
        "files": [
            asdict(outcome) if isinstance(outcome, IndexedFile) else {"path": outcome.path, "error": str(outcome.error)}
            for outcome in outcomes
        ]
    }


def _index_outcome(indexed: IndexedFile) -> str:
    if indexed.kept_at is None:
        return "no index needed"
    if not indexed.built:
        return "already there"
    return f"built in {indexed.wall_s:.2f} s ({indexed.members / indexed.wall_s:,.0f} members/s)"


@contextmanager
def _index_progress(total: int, console: Console) -> Iterator[Callable[[Sequence[IndexOutcome]], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("Indexing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=total)
        yield lambda outcomes: progress.update(bar, completed=len(outcomes))


# -- from cli/stage.py: `headrace stage` and `headrace unstage`: copies of datasets in memory or on a local disk.


StageSources = Annotated[list[str], typer.Argument(help="Folders, files, or patterns such as 'train-{000..009}.tar'.")]
StageFolder = Annotated[
    Path, typer.Argument(help="The folder for the copies, such as /dev/shm/train; made if it is missing.")
]
StageThreads = Annotated[
    int | None, typer.Option(min=1, help="Parts copied side by side. Default: the cores available.")
]
StageVerify = Annotated[bool, typer.Option("--verify", help="Read what is there already, too, and repair it.")]
Reserve = Annotated[str | None, typer.Option(help="Memory, or space on the disk, to leave to runs: 8GB.")]
Force = Annotated[bool, typer.Option("--force", help="Remove copies that were written since, too.")]


def stage(
    sources: StageSources,
    to: StageFolder,
    *,
    threads: StageThreads = None,
    verify: StageVerify = False,
    reserve: Reserve = None,
    json: Json = None,
) -> None:
    """Copy datasets to memory (/dev/shm) or a local disk. Run it again if it was broken off: what is complete stays."""
    from headrace.data.staging import sources_of
    from headrace.data.staging import stage as stage_sources
    from headrace.data.storage.paths import resolve_paths

    console = console_for(json)
    found = sources_of([path for source in sources for path in resolve_paths(source)])
    with _stage_progress(console) as tick:
        report = stage_sources(
            found,
            to=str(to),
            threads=threads,
            verify=verify,
            reserve_bytes=None if reserve is None else _reserve_bytes(reserve),
            tick=tick,
        )
    for line in staged_lines(report, found):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if json is not None:
        write_json(json, report.document())


def unstage(to: StageFolder, *, force: Force = False, json: Json = None) -> None:
    """Remove what `headrace stage` has copied there, and nothing else."""
    from headrace.data.staging import unstage as unstage_folder

    console = console_for(json)
    report = unstage_folder(str(to), force=force)
    for line in unstaged_lines(report):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if json is not None:
        write_json(json, report.document())
    if report.left:
        raise HeadraceError(f"{report.to}: {len(report.left):,} files were left. Remove them, too: --force")


def _reserve_bytes(text: str) -> int:
    from headrace.cache.spec import parse_size

    return 0 if text == "0" else parse_size(text, text, "--reserve")


@contextmanager
def _stage_progress(console: Console) -> Iterator[Callable[[StageReport], None]]:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    hidden = not console.is_terminal
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=hidden) as progress:
        bar = progress.add_task("Staging", total=None)

        def tick(report: StageReport) -> None:
            verifying = not report.kept and report.verified is not None
            progress.update(
                bar,
                description="Reading what is there" if verifying else "Staging",
                completed=report.verified_bytes if verifying else report.copied_bytes + report.kept_bytes,
                total=report.total_bytes,
            )

        yield tick


# -- from cli/unpack.py: `headrace unpack`: archives to files.


if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from headrace.tools.unpack import UnpackReport

    Tick = Callable[[Sequence[UnpackReport]], None]

Archives = Annotated[list[str], typer.Argument(help="Tars, compressed ones too, and zips; patterns too.")]
UnpackFolder = Annotated[Path, typer.Option(help="The folder to unpack into; made if it is missing.")]
UnpackThreads = Annotated[
    int | None, typer.Option(min=1, help="Files written side by side. Default: the cores available.")
]
UnpackVerify = Annotated[bool, typer.Option("--verify", help="Compare every file with the archive at the end.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that are there and differ.")]
SkipRefused = Annotated[bool, typer.Option("--skip-refused", help="Leave out members that must not be made.")]
UnpackCache = Annotated[Path | None, typer.Option(help="Folder for the archives' indices. Default: beside each.")]


def unpack(
    archives: Archives,
    *,
    to: UnpackFolder = Path(),
    threads: UnpackThreads = None,
    verify: UnpackVerify = False,
    overwrite: Overwrite = False,
    skip_refused: SkipRefused = False,
    cache: UnpackCache = None,
    json: Json = None,
) -> None:
    """Make the files that tars and zips hold. Run it again if it was broken off: what is complete is left alone."""
    from headrace.data.storage.paths import resolve_paths
    from headrace.tools.unpack import unpack as unpack_archives
    from headrace.tools.unpack.unpacking import summary

    console = console_for(json)
    with _unpack_progress(console, passes=2 if verify else 1) as tick:
        reports = unpack_archives(
            [path for archive in archives for path in resolve_paths(archive)],
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
def _unpack_progress(console: Console, *, passes: int) -> Iterator[Tick]:
    """A bar of the bytes that are written, and in a second of `passes` compared; without a total while a compressed
    archive is among them, whose size nobody knows."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    hidden = not console.is_terminal
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=hidden) as progress:
        bar = progress.add_task("Unpacking", total=None)

        def tick(reports: Sequence[UnpackReport]) -> None:
            ended = sum(report.wall_s is not None for report in reports)
            totals = [report.total_bytes for report in reports]
            progress.update(
                bar,
                description=f"Unpacking {ended + 1} of {len(reports)}" if ended < len(reports) > 1 else "Unpacking",
                completed=sum(report.seen_bytes for report in reports),
                total=None if None in totals else passes * sum(total for total in totals if total is not None),
            )

        yield tick


# -- from stage/summary.py: What was staged or removed, in a few lines for people.


_STAGED_NAMED_MOST = 5


def staged_lines(report: StageReport, sources: Sequence[StageSource]) -> Iterator[str]:
    """The outcome first, then what is not as everybody would expect, and where the copies are."""
    took = report.wall_s or 0.0
    rate = f", {decimal(int(report.copied_bytes / took))}/s" if report.copied and took else ""
    yield f"{report.copied:,} files of {decimal(report.copied_bytes)} copied and read back in {took:.1f} s{rate}"
    if report.kept:
        yield f"{report.kept:,} files were there already, with the size and time of their sources"
    if report.verified is not None:
        yield f"{report.verified:,} of them read again: each has the bytes that were staged"
    if report.repaired:
        yield f"{len(report.repaired):,} copies were not as they had been staged, and were made anew: " + _some_staged(
            report.repaired
        )
    if report.gone:
        yield f"{report.gone:,} copies removed, as their sources are gone"
    for what, count in report.skipped.items():
        yield f"not copied: {count:,} {what}"
    copies = [source.copy_in(report.to) for source in sources]
    yield f"→ {copies[0]}" + (f" and {len(copies) - 1:,} more in {report.to}" if len(copies) > 1 else "")


def unstaged_lines(report: UnstageReport) -> Iterator[str]:
    yield f"{report.removed:,} files of {decimal(report.removed_bytes)} removed from {report.to}"
    if report.left:
        yield f"left, as they are not as they were staged: {_some_staged(report.left)}"


def _some_staged(texts: Sequence[str]) -> str:
    more = f", and {len(texts) - _STAGED_NAMED_MOST:,} more" if len(texts) > _STAGED_NAMED_MOST else ""
    return ", ".join(texts[:_STAGED_NAMED_MOST]) + more
