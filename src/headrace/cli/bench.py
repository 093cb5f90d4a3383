"""`headrace bench`: Headrace beside torch's DataLoader on one's own files."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from .terminal import Json, console_for, track, write_json


class Output(StrEnum):
    """What both loaders make of a pixel."""

    uint8 = "uint8"
    float32 = "float32"


Threads = Annotated[int | None, typer.Option(min=1, help="Cores for each loader. Default: all that are available.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Images a batch.")]
OutputType = Annotated[Output, typer.Option(help="uint8, or float32 normalised with ImageNet's statistics.")]
Rounds = Annotated[int, typer.Option(min=1, help="Runs of each loader, taken in turn; medians are shown.")]
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
    output: OutputType = Output.uint8,
    rounds: Rounds = 3,
    images: Images = 6000,
    against: Against = None,
    json: Json = None,
) -> None:
    """Headrace beside torch's DataLoader with Pillow, or a loader of yours, on your own files, at equal cores."""
    from headrace.bench.environment import environment
    from headrace.bench.preflight import available_images
    from headrace.bench.result import Result
    from headrace.bench.rounds import run_rounds
    from headrace.bench.settings import Settings
    from headrace.bench.table import show
    from headrace.feed import available_cores

    settings = Settings(
        path=path,
        threads=available_cores() if threads is None else threads,
        batch_size=batch_size,
        output=output.value,
        rounds=rounds,
        images=images,
        against=against,
    )
    console = console_for(json)
    available = available_images(settings)
    runs = list(track(run_rounds(settings), "Measuring, loader by loader", rounds * len(settings.loaders), console))
    result = Result(settings=settings, environment=environment(), available=available, runs=runs)
    show(result, console)
    if json is not None:
        write_json(json, result.document())
