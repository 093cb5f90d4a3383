"""`headrace pack`, `verify`, `info` and `merge`: datasets as tar shards that are faster to read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.errors import HeadraceError, UsageError
from headrace.tools.terminal import Endpoint, Json, Profile, byte_progress, console_for, say, store_options, write_json

if TYPE_CHECKING:
    from headrace.pack import PackReport, PackSummary, TrialReport

Folder = Annotated[str, typer.Argument(help="Folder of the pack, or its address in a store.")]


def pack(
    source: Annotated[str, typer.Argument(help="Whatever headrace.open takes: a folder, tars, an address, …")],
    to: Annotated[str, typer.Argument(help="Folder for the shards, made if it is missing, or an address: s3://…")],
    *,
    short_side: Annotated[
        int | None, typer.Option(min=1, help="Reduce larger images to this short side in pixels: 256, 384, 512.")
    ] = None,
    quality: Annotated[int, typer.Option(min=1, max=100, help="JPEG quality of reduced images.")] = 90,
    yuv420: Annotated[
        bool, typer.Option("--yuv420", help="Store JPEGs' planes: decoded, half of RGB's bytes.")
    ] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Store pixels, as PPM.")] = False,
    dense: Annotated[
        str | None,
        typer.Option(
            help="Columns that are reduced with the nearest filter and stored without loss. "
            "Default: mask,depth,segmentation.",
            show_default=False,
        ),
    ] = None,
    shuffle: Annotated[int | None, typer.Option(help="Seed of a random order. Default: the dataset's order.")] = None,
    max_shard: Annotated[str, typer.Option(help="Largest shard: 500MB, 1GB.")] = "1GB",
    drop_bad: Annotated[bool, typer.Option("--drop-bad", help="Leave out samples that cannot be converted.")] = False,
    shard: Annotated[str, typer.Option(help="Write part I of N, for arrays of jobs: 0/16 to 15/16.")] = "0/1",
    ray: Annotated[
        str | None,
        typer.Option(help="Write the shards on the Ray cluster at this address; auto: the one running here."),
    ] = None,
    root: Annotated[
        str | None, typer.Option(help="Folder, archive or address where paths in a manifest begin.")
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Column names of a manifest without a header: rgb,depth.")] = None,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Samples in parallel. Default: one per core; 8 if the source is in a store."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show sizes and speed, on a few samples.")] = False,
    endpoint: Endpoint = None,
    profile: Profile = None,
    json: Json = None,
) -> None:
    """Write a dataset as tar shards that any tool reads and whose images decode faster. A killed run goes on."""
    from rich.console import Console

    from headrace.cache import parse_size
    from headrace.data import open as open_dataset
    from headrace.pack import DENSE, Form, PackOptions, pack_on_ray, schema_of, try_out
    from headrace.pack import pack as write_pack
    from headrace.stores import is_remote

    if yuv420 and raw:
        raise UsageError("expected --yuv420 or --raw, got both")
    if ray is not None and (shard != "0/1" or threads is not None):
        raise UsageError("expected --ray without --shard and --threads: each shard is a task of one core")
    form = Form.yuv420 if yuv420 else Form.raw if raw else Form.lossless if short_side is None else Form.jpeg
    options = PackOptions(
        form=form,
        short_side=short_side,
        quality=quality,
        dense=DENSE if dense is None else tuple(name for name in dense.split(",") if name),
        shuffle=shuffle,
        max_shard_bytes=parse_size(max_shard, max_shard, "--max-shard"),
        drop_bad=drop_bad,
    )
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    stores = store_options(endpoint, profile)
    is_for_source = is_remote(source) or is_remote(root) or (bool(stores) and not is_remote(to))
    dataset = open_dataset(source, root=root, columns=names, store_options=stores if is_for_source else None)
    console, part = console_for(json), part_of(shard)
    schema = schema_of(dataset)
    say(console, ["Columns: " + ", ".join(f"{each.name} ({each.members})" for each in schema)])
    trial = try_out(dataset, options, threads=threads)
    say(console, trial_lines(trial))
    document: dict[str, object] = {"columns": {each.name: each.members for each in schema}, "trial": asdict(trial)}
    if not dry_run:
        with byte_progress(Console(stderr=True), "Packing") as update:

            def tick(done: int, total: int, written: int) -> None:
                update(f"Packing, {done:,} of {total:,} samples", written, round(written * total / max(1, done)))

            if ray is None:
                report = write_pack(dataset, to, options, part=part, threads=threads, tick=tick, store_options=stores)
            else:
                report = pack_on_ray(dataset, to, options, address=ray, tick=tick, store_options=stores)
        say(console, pack_lines(report, to))
        document["pack"] = asdict(report)
    write_json(json, document)


def verify(folder: Folder, *, endpoint: Endpoint = None, profile: Profile = None, json: Json = None) -> None:
    """Check every byte of a pack, and name each member that changed."""
    from headrace.pack import describe
    from headrace.pack import verify as wrong_in

    console, stores = console_for(json), store_options(endpoint, profile)
    wrong = wrong_in(folder, store_options=stores)
    say(console, wrong)
    write_json(json, {"folder": folder, "wrong": wrong})
    if wrong:
        raise HeadraceError(
            f"{folder}: {len(wrong):,} fault{'s' * (len(wrong) > 1)}; delete those shards, and run pack again"
        )
    summary = describe(folder, store_options=stores)
    say(console, [f"{folder}: {summary.samples:,} samples in {summary.shards:,} shards, every byte is right"])


def info(
    folder: Annotated[
        str | None, typer.Argument(help="Folder of the pack, or its address in a store.", show_default=False)
    ] = None,
    *,
    system: Annotated[
        bool, typer.Option("--system", help="Print versions, cores and instruction sets, for a bug report.")
    ] = False,
    alike: Annotated[
        bool, typer.Option("--near-duplicates", help="Also decode all images, and list those that look alike.")
    ] = False,
    endpoint: Endpoint = None,
    profile: Profile = None,
    json: Json = None,
) -> None:
    """Summarise a pack: samples, bytes, columns, options, and the samples left out."""
    if system == (folder is not None):
        raise UsageError(f"info: expected the folder of a pack or --system, got {'both' if system else 'neither'}")
    if folder is None:
        found = system_facts()
        say(console_for(json), (f"{name}: {value}" for name, value in found.items()))
        write_json(json, found)
        return
    from headrace.pack import describe

    stores = store_options(endpoint, profile)
    summary = describe(folder, store_options=stores)
    console = console_for(json)
    say(console, info_lines(folder, summary))
    document: dict[str, object] = asdict(summary)
    if alike:
        groups = document["near_duplicates"] = _alike_in(folder, stores)
        say(console, [f"{len(groups):,} groups of images that look alike:", *map("  {}".format, map(" ".join, groups))])
    write_json(json, document)


def system_facts() -> dict[str, object]:
    """Return versions, cores and instruction sets of this machine, as a bug report needs them."""
    from headrace import _core
    from headrace.tools.bench.comparison import environment

    here = environment()
    versions = {name: version or "none" for name, version in here.packages.items()}
    return {
        **versions,
        "python": here.python,
        "system": here.system,
        "cpu": here.cpu or "unknown",
        "cores": here.cores,
        "instruction sets": f"{', '.join(_core.levels())}; best: {_core.best_level()}",
        "codecs": here.codecs,
    }


def _alike_in(folder: str, stores: dict[str, str]) -> list[list[str]]:
    """Return the keys of each group of images that look alike. Raises UsageError for a pack without images."""
    from headrace.data import open as open_dataset
    from headrace.tools.peek_survey import near_duplicates, survey

    dataset = open_dataset(folder, store_options=stores or None)
    dataset.expect_files("image")
    seen = [(each.key, each.fingerprint) for each in survey(dataset, "image", range(len(dataset))) if each.fingerprint]
    return [[seen[place][0] for place in group] for group in near_duplicates([print_ for _, print_ in seen])]


def merge(folder: Folder, *, endpoint: Endpoint = None, profile: Profile = None, json: Json = None) -> None:
    """Check that the shards of all parts are there, and build the indices that are missing."""
    from headrace.pack import merge as complete

    shards = complete(folder, store_options=store_options(endpoint, profile))
    say(console_for(json), [f"{folder}: all {shards:,} shards, indexed"])
    write_json(json, {"folder": folder, "shards": shards})


def part_of(text: str) -> tuple[int, int]:
    """Return I and N of `I/N`. Raises UsageError."""
    number, _, parts = text.partition("/")
    if not (number.isdecimal() and parts.isdecimal() and int(number) < int(parts)):
        raise UsageError(f"--shard: expected I/N with 0 ≤ I < N, such as 3/16, got {text!r}")
    return int(number), int(parts)


def trial_lines(trial: TrialReport) -> Iterator[str]:
    from rich.filesize import decimal

    if not trial.samples:
        yield "The dataset has no samples."
        return
    yield (
        f"{trial.samples:,} samples tried: {decimal(trial.source_bytes)} become {decimal(trial.bytes)} "
        f"({trial.bytes / max(1, trial.source_bytes):.2f} ×); the pack takes about "
        f"{decimal(trial.estimated_bytes)} in {trial.shards:,} shards"
    )
    if trial.decode_before_s and trial.decode_after_s:
        yield (
            f"A random crop to 224 × 224 takes a core {trial.decode_before_s / trial.samples * 1e3:.2f} ms before and "
            f"{trial.decode_after_s / trial.samples * 1e3:.2f} ms after: "
            f"{trial.decode_before_s / trial.decode_after_s:.1f} × as fast"
        )
    if trial.psnr_db is not None:
        yield f"Against the resized originals: PSNR {trial.psnr_db:.1f} dB, SSIM {trial.ssim:.3f} (medians)"


def pack_lines(report: PackReport, to: str) -> Iterator[str]:
    from rich.filesize import decimal

    yield (
        f"{to}: {report.samples:,} samples in {report.shards:,} shards ({decimal(report.bytes)}), "
        f"{report.written:,} of them written now, in {report.wall_s:.1f} s"
    )
    yield from _dropped_lines(report.dropped)


def info_lines(folder: str, summary: PackSummary) -> Iterator[str]:
    from rich.filesize import decimal

    yield (
        f"{folder}: {summary.samples:,} samples in {summary.shards:,} of {summary.expected:,} shards, "
        f"{decimal(summary.bytes)} from {decimal(summary.source_bytes)}"
    )
    yield f"columns: {', '.join(summary.columns)}"
    if summary.classes is not None:
        yield f"classes: {len(summary.classes):,}"
    yield "options: " + ", ".join(f"{name}={value}" for name, value in summary.options.items() if value is not None)
    yield from _dropped_lines(summary.dropped)


def _dropped_lines(dropped: tuple[tuple[str, str], ...]) -> Iterator[str]:
    if dropped:
        yield f"{len(dropped):,} samples left out:"
        yield from (f"  {key}: {why}" for key, why in dropped[:20])
