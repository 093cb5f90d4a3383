"""The command line: `headrace VERB …`. Each verb is a function here; the work is in the module of its name."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from headrace.doctor.cli import app as doctor_app
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")


class Output(StrEnum):
    """What both loaders make of a pixel."""

    uint8 = "uint8"
    float32 = "float32"


app = typer.Typer(
    name="headrace",
    help="Keeps GPUs fed in PyTorch training.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(doctor_app, name="doctor")

Threads = Annotated[int | None, typer.Option(min=1, help="Cores for each loader. Default: all that are available.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Images a batch.")]
OutputType = Annotated[Output, typer.Option(help="uint8, or float32 normalised with ImageNet's statistics.")]
Rounds = Annotated[int, typer.Option(min=1, help="Runs of each loader, taken in turn; medians are shown.")]
Images = Annotated[int, typer.Option(min=1, help="Images counted in a run, at least.")]
Json = Annotated[str | None, typer.Option("--json", help="Write the figures to this file; - for standard output.")]


@app.callback(invoke_without_command=True)
def options(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        import headrace

        typer.echo(f"headrace {headrace.__version__}")
        raise typer.Exit


@app.command()
def bench(
    path: Annotated[str, typer.Argument(help="A folder of images, a tar, or a glob of tars.")],
    *,
    threads: Threads = None,
    batch_size: BatchSize = 256,
    output: OutputType = Output.uint8,
    rounds: Rounds = 3,
    images: Images = 6000,
    json: Json = None,
) -> None:
    """Headrace beside torch's DataLoader with Pillow, on your own files, at equal cores and output."""
    _compare(path, threads=threads, batch_size=batch_size, output=output, rounds=rounds, images=images, json=json)


@app.command()
def demo(
    *,
    photos: Annotated[Path | None, typer.Option(help="A folder of photographs to cut the images from.")] = None,
    count: Annotated[int, typer.Option(min=8, help="Images to make.")] = 600,
    threads: Threads = None,
    batch_size: BatchSize = 256,
    output: OutputType = Output.uint8,
    rounds: Rounds = 3,
    images: Images = 6000,
    json: Json = None,
) -> None:
    """Make a small photographic data set, then do what `headrace bench` does on it."""
    console = _console(json)
    path = _demo_photographs(photos, count, console)
    console.print(f"headrace bench {path}", style="bold", highlight=False, markup=False, soft_wrap=True)
    _compare(str(path), threads=threads, batch_size=batch_size, output=output, rounds=rounds, images=images, json=json)


def _demo_photographs(photos: Path | None, count: int, console: Console) -> Path:
    """The data set's folder, made on the first call."""
    from headrace.demo.dataset import PHOTOGRAPHS_AT_MOST, cached_path, write_dataset
    from headrace.demo.sources import find_source

    source = find_source(photos).picked(PHOTOGRAPHS_AT_MOST)
    path = cached_path(source, count)
    if not path.is_dir():
        photographs = list(_track(source.load(), "Loading photographs", len(source), console))
        for _ in _track(write_dataset(photographs, path, count), "Writing images", count, console):
            pass
    console.print(f"{count:,} images cut from {source.origin}", highlight=False, markup=False, soft_wrap=True)
    return path


def _compare(
    path: str, *, threads: int | None, batch_size: int, output: Output, rounds: int, images: int, json: str | None
) -> None:
    from headrace.bench.environment import environment
    from headrace.bench.preflight import available_images
    from headrace.bench.result import Result
    from headrace.bench.rounds import LOADERS, run_rounds
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
    )
    console = _console(json)
    available = available_images(settings)
    runs = list(_track(run_rounds(settings), "Measuring, loader by loader", rounds * len(LOADERS), console))
    result = Result(settings=settings, environment=environment(), available=available, runs=runs)
    show(result, console)
    if json is not None:
        _write_json(json, result.document())


def _console(json: str | None) -> Console:
    """Where people read; with `--json -` standard output is for machines."""
    from rich.console import Console

    return Console(stderr=json == "-")


def _track(items: Iterable[T], what: str, total: int, console: Console) -> Iterator[T]:
    from rich.progress import track

    return iter(track(items, what, total=total, console=console, transient=True))


def _write_json(where: str, document: dict[str, Any]) -> None:
    import json

    text = json.dumps(document, indent=2) + "\n"
    if where == "-":
        sys.stdout.write(text)
        return
    try:
        Path(where).write_text(text)
    except OSError as error:
        raise HeadraceError(f"--json: expected a file to write, got {where} ({error.strerror})") from error


def main() -> None:
    """The console script: an error of ours is one readable message and exit code 1, without a traceback."""
    try:
        app()
    except HeadraceError as error:
        typer.echo(f"headrace: {error}", err=True)
        sys.exit(1)
