"""Comparison of two loaders: preflight, medians, verdict, JSON and table."""

from __future__ import annotations

import importlib.util
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from PIL import features
from rich.console import Console
from rich.table import Table

import headrace as hr
from headrace._core import codec_versions
from headrace.errors import UsageError
from headrace.system import available_cores
from headrace.tools.bench.against import check_name
from headrace.tools.bench.runs import BenchRun, one_run
from headrace.tools.bench.settings import CROP_PX, FILES_AT_MOST, BenchSettings, list_images

OTHERS = ("torch", "pillow", "numpy")


@dataclass(frozen=True, kw_only=True)
class BenchEnvironment:
    """Machine, versions and date of a comparison; unknown values are None."""

    date: str  # ISO 8601, UTC
    cpu: str | None
    cores: int  # available to this process
    system: str
    python: str
    packages: Mapping[str, str | None]
    codecs: str  # of Headrace
    pillow_libjpeg_turbo: str | None


def environment() -> BenchEnvironment:
    """Describe this machine and its installed versions."""
    packages: dict[str, str | None] = dict.fromkeys(OTHERS)
    for name in OTHERS:
        with suppress(PackageNotFoundError):
            packages[name] = version(name)
    return BenchEnvironment(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        cpu=cpu_model(Path("/proc/cpuinfo").read_text()),
        cores=available_cores(),
        system=platform.platform(),
        python=platform.python_version(),
        packages={"headrace": hr.__version__, **packages},
        codecs=codec_versions(),
        pillow_libjpeg_turbo=features.version("libjpeg_turbo"),
    )


def cpu_model(cpuinfo: str) -> str | None:
    """Find the CPU's name in the text of /proc/cpuinfo; None on ARM machines, which have none."""
    names = (line.partition(":")[2].strip() for line in cpuinfo.splitlines() if line.startswith("model name"))
    return next(names, None)


SCHEMA = 1


class BenchMetric(NamedTuple):
    """Metric of a run: its attribute name there and its label. It may be missing from a run."""

    key: str
    label: str
    more_is_better: bool = False


METRICS = (
    BenchMetric("images_per_s", "images/s", more_is_better=True),
    BenchMetric("cpu_s_per_1000", "CPU-s/1,000 images"),
    BenchMetric("first_batch_s", "first batch, s"),
    BenchMetric("peak_memory_bytes", "peak memory, MB (PSS)"),
)


@dataclass(frozen=True, kw_only=True)
class BenchResult:
    """All runs of a comparison in order of execution, with settings and environment."""

    settings: BenchSettings
    environment: BenchEnvironment
    available: int  # images in the dataset
    runs: Sequence[tuple[str, BenchRun]]

    def figures(self, loader: str, metric: BenchMetric) -> list[float]:
        """Return all measured values of one loader."""
        found = (getattr(run, metric.key) for name, run in self.runs if name == loader)
        return [figure for figure in found if figure is not None]

    def median(self, loader: str, metric: BenchMetric) -> float | None:
        """Return the median over the rounds; None if nothing was measured."""
        figures = self.figures(loader, metric)
        return median(figures) if figures else None

    def gain(self, metric: BenchMetric) -> float | None:
        """Return the ratio of Headrace's median to the peer's, oriented so that above 1 is always better."""
        own, peer = (self.median(loader, metric) for loader in self.settings.loaders)
        if not own or not peer:
            return None
        return own / peer if metric.more_is_better else peer / own

    @property
    def verdict(self) -> str:
        """One-line summary."""
        speed = self.gain(METRICS[0])
        cores = f"{self.settings.threads} core" + ("s" if self.settings.threads > 1 else "")
        return f"Headrace: {digits(speed)} × {self.peer} at {cores}"

    @property
    def peer(self) -> str:
        """Name of the other loader."""
        return self.settings.against or "torch DataLoader"

    def document(self) -> dict[str, Any]:
        """Return the comparison as a JSON document."""
        return {
            "schema": SCHEMA,
            "verdict": self.verdict,
            "settings": asdict(self.settings),
            "images_available": self.available,
            "images_used": min(self.available, FILES_AT_MOST),
            "environment": asdict(self.environment),
            "gain": {metric.key: self.gain(metric) for metric in METRICS},
            "median": {
                name: {metric.key: self.median(name, metric) for metric in METRICS} for name in self.settings.loaders
            },
            "runs": [{"loader": name, **asdict(run)} for name, run in self.runs],
        }


def digits(figure: float | None) -> str:
    """Format a figure with its two or three significant digits: 4.1, 0.85, 132, 2,620; a dash for None."""
    if figure is None:
        return "–"
    if abs(figure) >= 100:
        return f"{figure:,.0f}"
    return f"{figure:.1f}" if abs(figure) >= 1 else f"{figure:.2f}"


ASCII = {ord("×"): "x", ord("–"): "-"}


def show(result: BenchResult, console: Console) -> None:
    """Print the comparison, in ASCII if the terminal supports nothing else."""
    signs = ASCII if console.options.ascii_only else {}
    console.print(f"[bold]{result.verdict.translate(signs)}[/bold]\n", highlight=False)
    console.print(_table(result, signs))
    console.print(_conditions(result), highlight=False, markup=False, soft_wrap=True)


def _table(result: BenchResult, signs: dict[int, str]) -> Table:
    rounds = result.settings.rounds
    title = f"median of {rounds} rounds (least–most)" if rounds > 1 else "one round"
    table = Table(title=title.translate(signs), title_justify="left")
    table.add_column("")
    peer = "torch + Pillow" if result.settings.against is None else "yours"
    for name in ("Headrace", peer, "gain"):
        table.add_column(name, justify="right")
    for metric in METRICS:
        cells = [_cell(result, loader, metric) for loader in result.settings.loaders]
        gain = result.gain(metric)
        colour = "green" if gain is not None and gain > 1 else "red"
        cells.append(digits(None) if gain is None else f"[{colour}]{digits(gain)} ×[/{colour}]")
        table.add_row(metric.label, *(cell.translate(signs) for cell in cells))
    return table


def _cell(result: BenchResult, loader: str, metric: BenchMetric) -> str:
    scale = 1e-6 if metric.key.endswith("_bytes") else 1.0
    figures = [figure * scale for figure in result.figures(loader, metric)]
    middle = result.median(loader, metric)
    if middle is None:
        return digits(None)
    spread = f" ({digits(min(figures))}–{digits(max(figures))})" if len(figures) > 1 else ""
    return digits(middle * scale) + spread


def _conditions(result: BenchResult) -> str:
    """Describe the conditions of both loaders. The work of a user's loader is unknown and may differ."""
    settings, used = result.settings, min(result.available, FILES_AT_MOST)
    own, peer = (next(run.images for name, run in result.runs if name == loader) for loader in settings.loaders)
    work = f"RandomResizedCrop({CROP_PX}) + flip to {settings.output}, batch {settings.batch_size}"
    if settings.against is None:
        what = (
            f"{work}, {settings.threads} threads against {settings.threads} workers, both held to {settings.threads} "
            f"cores.\n{used:,} of {result.available:,} images in {settings.path}; {own:,} counted a run."
        )
    else:
        what = (
            f"Headrace: {work}, of {settings.path}. Yours: what {settings.against} gives; whether it is the same work "
            f"is for you to say.\nBoth held to {settings.threads} cores; {own:,} and {peer:,} samples counted a run."
        )
    return f"{what}\n{machine(result.environment)}"


def machine(what: BenchEnvironment) -> str:
    """Describe the machine in one line."""
    packages = ", ".join(f"{name} {number}" for name, number in what.packages.items() if number is not None)
    return f"{what.cpu or 'unnamed CPU'}, Python {what.python}, {packages}, {what.date}."


def available_images(settings: BenchSettings) -> int:
    """Check that both loaders can run and return the dataset's number of images.

    torch's DataLoader must find the same images; a user's loader may read others. Opening also builds a tar's index, so
    that every run finds it.
    """
    check_torch()
    check_cores(settings.threads)
    if settings.against is not None:
        check_name(settings.against)
        one_run(settings, "yours", 0, only_check=True)
        return len(hr.open(settings.path))
    own, peer = len(hr.open(settings.path)), len(list_images(settings.path))
    if own != peer:
        raise UsageError(
            f"expected one image a sample in {settings.path}; headrace.open finds {own} samples, and {peer} files "
            "there are images by their names. Give a dataset with one image a sample."
        )
    return own


def check_torch() -> None:
    """Raise UsageError if torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise UsageError("the comparison is with torch's DataLoader, and torch is not installed: pip install torch")


def check_cores(threads: int) -> None:
    """Raise UsageError if `threads` exceeds the cores: the comparison would not be at equal cores."""
    cores = available_cores()
    if threads > cores:
        raise UsageError(f"expected at most {cores} threads, the cores that this process may use; got {threads}.")
