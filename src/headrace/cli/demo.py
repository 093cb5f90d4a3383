"""`headrace demo`: a small photographic data set is made, and measured as `headrace bench` does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.tools.bench_command import BatchSize, Dtype, Images, ImageType, Renamed, Rounds, Threads, bench
from headrace.tools.terminal import Json, console_for, track

if TYPE_CHECKING:
    from rich.console import Console


def demo(
    *,
    photos: Annotated[Path | None, typer.Option(help="A folder of photographs to cut the images from.")] = None,
    count: Annotated[int, typer.Option(min=8, help="Images to make.")] = 600,
    threads: Threads = None,
    batch_size: BatchSize = 256,
    dtype: Dtype = ImageType.uint8,
    output: Renamed = None,
    rounds: Rounds = 3,
    images: Images = 6000,
    json: Json = None,
) -> None:
    """Make a small photographic data set, then do what `headrace bench` does on it."""
    console = console_for(json)
    path = _photographs(photos, count, console)
    console.print(f"headrace bench {path}", style="bold", highlight=False, markup=False, soft_wrap=True)
    bench(str(path), threads=threads, batch_size=batch_size, dtype=dtype, rounds=rounds, images=images, json=json)


def _photographs(photos: Path | None, count: int, console: Console) -> Path:
    """The data set's folder, made on the first call."""
    from headrace.demo.dataset import PHOTOGRAPHS_AT_MOST, cached_path, write_dataset
    from headrace.tools.demo_dataset import find_source

    source = find_source(photos).picked(PHOTOGRAPHS_AT_MOST)
    path = cached_path(source, count)
    if not path.is_dir():
        photographs = list(track(source.load(), "Loading photographs", len(source), console))
        for _ in track(write_dataset(photographs, path, count), "Writing images", count, console):
            pass
    console.print(f"{count:,} images cut from {source.origin}", highlight=False, markup=False, soft_wrap=True)
    return path
