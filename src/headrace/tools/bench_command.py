"""`headrace bench`: Headrace beside torch's DataLoader on one's own files."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.tools.terminal import Json, console_for, track, write_json

if TYPE_CHECKING:
    from headrace.tools.bench.settings import Settings


@dataclass(frozen=True)
class Defaults:
    """Of what is not given."""

    batch_size: int
    rounds: int
    images: int


DEFAULTS = Defaults(batch_size=256, rounds=3, images=6000)
WORTH_DEFAULTS = Defaults(batch_size=32, rounds=5, images=400)
"""A run of each of many sides, several of them on one core."""


class ImageType(StrEnum):
    """Type of both loaders' images."""

    uint8 = "uint8"
    float32 = "float32"


Threads = Annotated[int | None, typer.Option(min=1, help="Cores for each loader. Default: all that are available.")]
BatchSize = Annotated[int | None, typer.Option(min=1, help="Images a batch. Default: 256; with --worth 32.")]
Dtype = Annotated[
    ImageType, typer.Option("--dtype", help="Of the images: uint8, or float32 normalised with ImageNet's statistics.")
]


def _renamed(given: str | None) -> None:
    if given is not None:
        raise typer.BadParameter(
            f"is now --dtype {given}: it names the images' type, and no file", param_hint="--output"
        )


Renamed = Annotated[str | None, typer.Option("--output", hidden=True, callback=_renamed)]
Rounds = Annotated[int | None, typer.Option(min=1, help="Runs of each, taken in turn. Default: 3; with --worth 5.")]
Images = Annotated[
    int | None, typer.Option(min=1, help="Images counted in a run, at least. Default: 6000; with --worth 400.")
]
WithWorth = Annotated[
    bool, typer.Option("--worth", help="Say what does not pay on this machine: workers, processes, caching, pinning.")
]
Step = Annotated[
    float, typer.Option("--step", min=0, metavar="MS", help="With --worth: what a training step waits on its device.")
]
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
    batch_size: BatchSize = None,
    dtype: Dtype = ImageType.uint8,
    rounds: Rounds = None,
    images: Images = None,
    output: Renamed = None,
    against: Against = None,
    worth: WithWorth = False,
    step: Step = 0.0,
    json: Json = None,
) -> None:
    """Headrace beside torch's DataLoader with Pillow, or a loader of yours, on your own files, at equal cores."""
    from headrace.errors import UsageError
    from headrace.loader import available_cores
    from headrace.tools.bench.settings import Settings

    if step and not worth:
        raise UsageError("--step: expected --worth beside it: the comparison has no training step")
    defaults = WORTH_DEFAULTS if worth else DEFAULTS
    settings = Settings(
        path=path,
        threads=available_cores() if threads is None else threads,
        batch_size=defaults.batch_size if batch_size is None else batch_size,
        output=dtype.value,
        rounds=defaults.rounds if rounds is None else rounds,
        images=defaults.images if images is None else images,
        step_ms=step,
        against=against,
    )
    if worth:
        _worth(settings, json)
    else:
        _beside(settings, json)


def _beside(settings: Settings, json: str | None) -> None:
    from headrace.bench.environment import environment
    from headrace.bench.preflight import available_images
    from headrace.bench.rounds import run_rounds
    from headrace.bench.table import show
    from headrace.tools.bench.comparison import Result

    console = console_for(json)
    available = available_images(settings)
    total = settings.rounds * len(settings.loaders)
    runs = list(track(run_rounds(settings), "Measuring, loader by loader", total, console))
    result = Result(settings=settings, environment=environment(), available=available, runs=runs)
    show(result, console)
    if json is not None:
        write_json(json, result.document())


def _worth(settings: Settings, json: str | None) -> None:
    from headrace.bench.worth import preflight, rounds, sides, worth
    from headrace.bench.worth_table import show_worth

    console = console_for(json)
    not_measured = preflight(settings)
    total = settings.rounds * len(sides(not_measured))
    measured = list(track(rounds(settings, not_measured), "Measuring, side by side", total, console))
    found = worth(settings, not_measured, measured)
    show_worth(found, console)
    if json is not None:
        write_json(json, found.document())
