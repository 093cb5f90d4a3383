"""`headrace bench` and `demo`: command-line verbs that measure loaders."""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headrace.tools.terminal import Json, console_for, say, track, write_json


class ImageType(StrEnum):
    """Dtype of both loaders' images."""

    uint8 = "uint8"
    float32 = "float32"


Threads = Annotated[int | None, typer.Option(min=1, help="Cores for each loader. Default: all that are available.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Images a batch.")]
Dtype = Annotated[
    ImageType, typer.Option("--dtype", help="Of the images: uint8, or float32 normalised with ImageNet's statistics.")
]


Rounds = Annotated[int, typer.Option(min=1, help="Runs of each, taken in turn.")]
Images = Annotated[int, typer.Option(min=1, help="Images counted in a run, at least.")]
Against = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:FUNCTION",
        help="In place of torch's DataLoader: what this function of yours gives, imported from the current folder.",
    ),
]


def bench(
    path: Annotated[str, typer.Argument(help="A folder of images, a tar, or a glob of tars.")],
    *,
    threads: Threads = None,
    batch_size: BatchSize = 256,
    dtype: Dtype = ImageType.uint8,
    rounds: Rounds = 3,
    images: Images = 6000,
    against: Against = None,
    json: Json = None,
) -> None:
    """Compare Headrace with torch's DataLoader and Pillow, or your own loader, on your files and equal cores."""
    from headrace.system import available_cores
    from headrace.tools.bench.comparison import BenchResult, available_images, environment, show
    from headrace.tools.bench.runs import run_rounds
    from headrace.tools.bench.settings import BenchSettings

    settings = BenchSettings(
        path=path,
        threads=available_cores() if threads is None else threads,
        batch_size=batch_size,
        output=dtype.value,
        rounds=rounds,
        images=images,
        against=against,
    )
    console = console_for(json)
    available = available_images(settings)
    total = settings.rounds * len(settings.loaders)
    runs = list(track(run_rounds(settings), "Measuring, loader by loader", total, console))
    result = BenchResult(settings=settings, environment=environment(), available=available, runs=runs)
    show(result, console)
    write_json(json, result.document())


def demo(
    *,
    photos: Annotated[Path | None, typer.Option(help="A folder of photographs to cut the images from.")] = None,
    count: Annotated[int, typer.Option(min=8, help="Images to make.")] = 600,
    threads: Threads = None,
    batch_size: BatchSize = 256,
    dtype: Dtype = ImageType.uint8,
    rounds: Rounds = 3,
    images: Images = 6000,
    json: Json = None,
) -> None:
    """Make a small photographic data set, then do what `headrace bench` does on it."""
    from headrace.cache import size_text
    from headrace.tools.demo_dataset import PHOTOGRAPHS_AT_MOST, cached_path, find_source, write_dataset

    console = console_for(json)
    source = find_source(photos).picked(PHOTOGRAPHS_AT_MOST)
    path = cached_path(source, count)  # written on the first call
    if not path.is_dir():
        photographs = list(track(source.load(), "Loading photographs", len(source), console))
        for _ in track(write_dataset(photographs, path, count), "Writing images", count, console):
            pass
    say(console, [f"{count:,} images cut from {source.origin}"])
    console.print(f"headrace bench {path}", style="bold", highlight=False, markup=False, soft_wrap=True)
    bench(str(path), threads=threads, batch_size=batch_size, dtype=dtype, rounds=rounds, images=images, json=json)
    taken = size_text(sum(file.stat().st_size for file in path.rglob("*.jpg")))
    say(console, [f"The images stay for the next demo: {taken}. To remove them: rm -r {shlex.quote(str(path))}"])
