"""A comparison for a terminal: the verdict first, the figures next, then what they mean."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from headrace.bench.environment import Environment
from headrace.tools.bench.comparison import METRICS, Metric, Result, digits
from headrace.tools.bench.settings import CROP_PX, FILES_AT_MOST

ASCII = {ord("×"): "x", ord("–"): "-"}


def show(result: Result, console: Console) -> None:
    """Print the comparison, in ASCII where the terminal knows no more."""
    signs = ASCII if console.options.ascii_only else {}
    console.print(f"[bold]{result.verdict.translate(signs)}[/bold]\n", highlight=False)
    console.print(_table(result, signs))
    console.print(_conditions(result), highlight=False, markup=False, soft_wrap=True)


def _table(result: Result, signs: dict[int, str]) -> Table:
    rounds = result.settings.rounds
    title = f"median of {rounds} rounds (least–most)" if rounds > 1 else "one round"
    table = Table(title=title.translate(signs), title_justify="left")
    table.add_column("")
    peer = "torch + Pillow" if result.settings.against is None else "yours"
    for name in ("Headrace", peer, "gain"):
        table.add_column(name, justify="right")
    for metric in METRICS:
        cells = [_cell(result, loader, metric) for loader in result.settings.loaders]
        cells.append(_gain(result.gain(metric)))
        table.add_row(metric.label, *(cell.translate(signs) for cell in cells))
    return table


def _gain(gain: float | None) -> str:
    if gain is None:
        return digits(None)
    colour = "green" if gain > 1 else "red"
    return f"[{colour}]{digits(gain)} ×[/{colour}]"


def _cell(result: Result, loader: str, metric: Metric) -> str:
    scale = 1e-6 if metric.key.endswith("_bytes") else 1.0
    figures = [figure * scale for figure in result.figures(loader, metric)]
    middle = result.median(loader, metric)
    if middle is None:
        return digits(None)
    spread = f" ({digits(min(figures))}–{digits(max(figures))})" if len(figures) > 1 else ""
    return digits(middle * scale) + spread


def _conditions(result: Result) -> str:
    settings = result.settings
    if settings.against is not None:
        return _beside_yours(result)
    used = min(result.available, FILES_AT_MOST)
    return (
        f"RandomResizedCrop({CROP_PX}) + flip to {settings.output}, batch {settings.batch_size}, "
        f"{settings.threads} threads against {settings.threads} workers, both held to {settings.threads} cores.\n"
        f"{used:,} of {result.available:,} images in {settings.path}; {result.runs[0][1].images:,} counted a run.\n"
        f"{machine(result.environment)}"
    )


def _beside_yours(result: Result) -> str:
    """What a loader of the user's makes of the files is theirs, and is not compared."""
    settings = result.settings
    counted = [next(run.images for name, run in result.runs if name == loader) for loader in settings.loaders]
    return (
        f"Headrace: RandomResizedCrop({CROP_PX}) + flip to {settings.output}, batch {settings.batch_size}, "
        f"of {settings.path}. Yours: what {settings.against} gives; whether it is the same work is for you to say.\n"
        f"Both held to {settings.threads} cores; {counted[0]:,} and {counted[1]:,} samples counted a run.\n"
        f"{machine(result.environment)}"
    )


def machine(what: Environment) -> str:
    """One line."""
    packages = ", ".join(f"{name} {number}" for name, number in what.packages.items() if number is not None)
    return f"{what.cpu or 'unnamed CPU'}, Python {what.python}, {packages}, {what.date}."
