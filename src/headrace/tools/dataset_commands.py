"""`headrace index`, `peek`, `stage` and `unstage`: command-line verbs for datasets and archives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.errors import HeadraceError
from headrace.tools.terminal import Endpoint, Json, Profile, byte_progress, console_for, say, some, track, write_json

if TYPE_CHECKING:
    from headrace.data import IndexOutcome
    from headrace.data.staging import StageReport, StageSource
    from headrace.views import View

Sources = Annotated[list[str], typer.Argument(help="Folders, files, or patterns such as 'train-{000..009}.tar'.")]
Indexable = Annotated[
    list[str],
    typer.Argument(help="Tars, zips, patterns such as 'train-{000..009}.tar', folders, or addresses: s3://…/*.tar."),
]
Copies = Annotated[Path, typer.Argument(help="Folder for the copies, such as /dev/shm/train; made if it is missing.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Files written in parallel. Default: the cores available.")]
Cache = Annotated[Path | None, typer.Option(help="Folder for the archives' indices. Default: beside each.")]


def index(
    paths: Indexable,
    *,
    to: Annotated[
        str | None,
        typer.Option(help="Merge the indices into one file: a path, or an address such as s3://…/a.headrace."),
    ] = None,
    cache: Cache = None,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Files scanned in parallel. Default: 8, in a store 32.", show_default=False),
    ] = None,
    endpoint: Endpoint = None,
    profile: Profile = None,
    anonymous: Annotated[bool, typer.Option("--anonymous", help="Sign no requests: for public buckets.")] = False,
    retry_for: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds for which failing requests are retried. Default: 300.", show_default=False),
    ] = None,
    prices: Annotated[
        Path | None, typer.Option(help="JSON with request and egress_gb (dollars): read what costs least, not fastest.")
    ] = None,
    json: Json = None,
) -> None:
    """Build the indices of archives ahead of training. Existing indices are left alone."""
    from rich.console import Console
    from rich.filesize import decimal

    from headrace.data import (
        ScanLog,
        ScanState,
        Stores,
        UnindexedFile,
        build_indices,
        indexable_paths,
        merge_indices,
        merged_target,
    )
    from headrace.tools.plan_command import read_prices

    console, folder = console_for(json), None if cache is None else str(cache.absolute())
    given = {"endpoint": endpoint, "profile": profile, "anonymous": anonymous or None}
    stores = Stores({name: value for name, value in given.items() if value is not None}, retry_for_s=retry_for)
    target = None if to is None else merged_target(to, stores)
    files = indexable_paths(paths, stores)
    errors, log = Console(stderr=True), ScanLog(files, advice=None)
    with byte_progress(errors, "Indexing") as update:

        def tick(state: ScanState) -> None:
            done = f"Indexing, {state.done:,} of {state.archives:,} archives, {decimal(state.read_bytes)} read"
            update(done, state.passed_bytes, state.total_bytes)
            if not errors.is_terminal:
                log.look(state)

        outcomes = build_indices(
            files,
            cache=folder,
            threads=threads,
            tick=tick,
            gap_bytes=None if prices is None else read_prices(prices).gap_bytes,
        )
    say(console, index_lines(outcomes))
    documents = [
        {"path": one.path, "error": str(one.error)} if isinstance(one, UnindexedFile) else asdict(one)
        for one in outcomes
    ]
    document: dict[str, object] = {"files": documents}
    failed = [outcome for outcome in outcomes if isinstance(outcome, UnindexedFile)]
    if target is not None and not failed:
        merged = merge_indices(files, outcomes, target, stores)
        document["merged"] = asdict(merged)
        say(console, [f"→ {merged.path}: {merged.archives:,} indices, {merged.bytes:,} bytes"])
    write_json(json, document)
    if failed:
        raise HeadraceError(f"{len(failed):,} of {len(outcomes):,} files could not be indexed: {failed[0].error}")


def index_lines(outcomes: Sequence[IndexOutcome]) -> Iterator[str]:
    """Yield one line per file, and a summary line for several files."""
    from rich.filesize import decimal

    from headrace.data import IndexedFile

    for outcome in outcomes:
        if not isinstance(outcome, IndexedFile):
            yield f"{outcome.path}: failed: {outcome.error}"
            continue
        samples = "" if outcome.samples is None else f"{outcome.samples:,} samples, "
        how, at = "already there", "" if outcome.kept_at is None else f": {outcome.kept_at}"
        if outcome.kept_at is None:
            how = "no index needed"
        elif outcome.built:
            how = f"built in {outcome.wall_s:.2f} s ({outcome.members / outcome.wall_s:,.0f} members/s)"
        yield f"{outcome.path}: {how}, {outcome.members:,} members, {samples}{decimal(outcome.bytes)}{at}"
    found = [outcome for outcome in outcomes if isinstance(outcome, IndexedFile)]
    if len(outcomes) > 1:
        members, size = sum(one.members for one in found), sum(one.bytes for one in found)
        built, none = sum(one.built for one in found), sum(one.kept_at is None for one in found)
        needless = f"{none:,} too small to need one, " if none else ""
        yield (
            f"{len(outcomes):,} files: {built:,} built, {len(found) - built - none:,} already there, {needless}"
            f"{len(outcomes) - len(found):,} failed; {members:,} members, {decimal(size)}"
        )


class PeekView(StrEnum):
    """View of the samples on the contact sheet."""

    train = "train"
    validate = "validate"
    whole = "whole"


def peek(
    path: Annotated[str, typer.Argument(help="Whatever headrace.open takes: a folder, tars, a manifest, …")],
    *,
    image: Annotated[str, typer.Option(help="The column of images.")] = "image",
    root: Annotated[Path | None, typer.Option(help="Folder or archive where paths in a manifest begin.")] = None,
    columns: Annotated[str | None, typer.Option(help="Column names of a manifest without a header: rgb,depth.")] = None,
    view: Annotated[
        PeekView, typer.Option(help="train: random crop and flip; validate: centre crop; whole.")
    ] = PeekView.train,
    size: Annotated[int, typer.Option(min=1, help="Height and width of the sheet's samples, in pixels.")] = 224,
    samples: Annotated[int, typer.Option(min=1, help="Samples to read, drawn at random where there are more.")] = 10000,
    sheet: Annotated[int, typer.Option(min=1, help="Samples on the contact sheet.")] = 36,
    seed: Annotated[int, typer.Option(help="Which samples, and which crops.")] = 0,
    to: Annotated[Path, typer.Option(help="Folder for peek.png and peek.html.")] = Path(),
    recipe: Annotated[
        Path | None, typer.Option(help="A Python file whose make_loader(path, …) makes the sheet's samples; no page.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The sheet of --recipe.")] = Path("recipe.png"),
    json: Json = None,
) -> None:
    """Show augmented samples on one sheet, and sizes, classes, near-duplicates and failing samples on a page."""
    if recipe is not None:
        from headrace.tools.recipe_sheet import write_recipe_sheet

        shown, each = write_recipe_sheet(recipe, path, out, samples=sheet, size=size, seed=seed)
        say(console_for(json), [f"{shown:,} samples of {each:,} pictures each", f"→ {out}"])
        write_json(json, {"samples": shown, "pictures": each, "sheet": str(out)})
        return
    from headrace.data import open as open_dataset
    from headrace.tools.peek_page import document, peeked, write_files
    from headrace.tools.peek_survey import spread, survey
    from headrace.views import CenterCrop, Letterbox, RandomResizedCrop, Resize

    console = console_for(json)
    dataset = open_dataset(path, root=root, columns=None if columns is None else columns.split(","))
    readable = [name for name in dataset.columns if dataset.has_bytes(name)]
    if image not in readable:
        have = ", ".join(readable) or "none"
        raise typer.BadParameter(f"expected a column of files, got {image!r}; there is {have}", param_hint="--image")
    dataset.expect_files(image)
    positions = spread(len(dataset), samples, seed=seed).tolist()
    looks = list(track(survey(dataset, image, positions), "Reading samples", len(positions), console))
    views: dict[PeekView, list[View]] = {
        PeekView.train: [RandomResizedCrop(size, flip=0.5)],
        PeekView.validate: [Resize(size * 8 // 7), CenterCrop(size)],  # 256 to 224, as in ImageNet validation
        PeekView.whole: [Letterbox((size, size))],
    }
    content, picture = peeked(dataset, image, looks, views[view], samples=sheet, seed=seed)
    write_files(content, picture, to)
    alike = sum(len(group.keys) - 1 for group in content.groups)
    lines = [
        f"{len(content.failures):,} of {len(looks):,} samples read cannot be loaded",
        f"{alike:,} look nearly like another",
        *([content.note] if content.note is not None else []),
        f"→ {to / 'peek.html'}" + ("" if picture is None else f"  {to / 'peek.png'}"),
    ]
    say(console, lines)
    write_json(json, document(content))


def stage(
    sources: Sources,
    to: Copies,
    *,
    threads: Threads = None,
    verify: Annotated[bool, typer.Option("--verify", help="Also read existing copies, and repair them.")] = False,
    reserve: Annotated[str | None, typer.Option(help="Memory or disk space to leave to runs: 8GB.")] = None,
    json: Json = None,
) -> None:
    """Copy datasets to memory (/dev/shm) or a local disk. Run it again after an interruption: it goes on from there."""
    from headrace.cache import parse_size
    from headrace.data import resolve_paths
    from headrace.data.staging import sources_of
    from headrace.data.staging import stage as stage_sources

    console = console_for(json)
    found = sources_of([path for source in sources for path in resolve_paths(source)])
    reserve_bytes = None if reserve is None else 0 if reserve == "0" else parse_size(reserve, reserve, "--reserve")
    with byte_progress(console, "Staging") as update:

        def tick(report: StageReport) -> None:
            update("Staging", report.copied_bytes + report.kept_bytes, report.bytes)

        report = stage_sources(
            found, to=str(to), threads=threads, verify=verify, reserve_bytes=reserve_bytes, tick=tick
        )
    say(console, staged_lines(report, found))
    write_json(json, asdict(report))


def staged_lines(report: StageReport, sources: Sequence[StageSource]) -> Iterator[str]:
    """Yield the outcome, then anything unexpected, then the location of the copies."""
    from rich.filesize import decimal

    took = report.wall_s or 0.0
    rate = f", {decimal(int(report.copied_bytes / took))}/s" if report.copied and took else ""
    yield f"{report.copied:,} files of {decimal(report.copied_bytes)} copied and read back in {took:.1f} s{rate}"
    if report.kept:
        yield f"{report.kept:,} files were there already, with the size and time of their sources"
    if report.verified:
        yield f"{report.kept:,} of them read again: each has the bytes of its source"
    if report.repaired:
        changed = some(report.repaired)
        yield f"{len(report.repaired):,} copies had changed since they were staged, and were made anew: {changed}"
    if report.gone:
        yield f"{report.gone:,} copies removed, as their sources are gone"
    for what, count in report.skipped.items():
        yield f"not copied: {count:,} {what}"
    copies = [source.copy_in(report.to) for source in sources]
    yield f"→ {copies[0]}" + (f" and {len(copies) - 1:,} more in {report.to}" if len(copies) > 1 else "")


def unstage(
    to: Copies,
    *,
    force: Annotated[bool, typer.Option("--force", help="Also remove copies that were written since.")] = False,
    json: Json = None,
) -> None:
    """Remove what `headrace stage` has copied there, and nothing else."""
    from rich.filesize import decimal

    from headrace.data.staging import unstage as unstage_folder

    console = console_for(json)
    report = unstage_folder(str(to), force=force)
    lines = [f"{report.removed:,} files of {decimal(report.removed_bytes)} removed from {report.to}"]
    if report.left:
        lines.append(f"left, as they changed since they were staged: {some(report.left)}")
    say(console, lines)
    write_json(json, report._asdict())
    if report.left:
        raise HeadraceError(f"{report.to}: {len(report.left):,} files were left. Remove them, too: --force")
