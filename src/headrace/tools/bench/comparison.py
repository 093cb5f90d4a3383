"""Medians, ratios, the verdict and the JSON document of a comparison: pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from headrace.bench.environment import Environment
from headrace.bench.measure import Run
from headrace.tools.bench.settings import FILES_AT_MOST, Settings

SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A figure of a run; `of` gives None where it could not be measured."""

    key: str
    label: str
    more_is_better: bool
    of: Callable[[Run], float | None]


METRICS = (
    Metric(key="images_per_s", label="images/s", more_is_better=True, of=lambda run: run.images_per_s),
    Metric(key="cpu_s_per_1000", label="CPU-s/1,000 images", more_is_better=False, of=lambda run: run.cpu_s_per_1000),
    Metric(key="first_batch_s", label="first batch, s", more_is_better=False, of=lambda run: run.first_batch_s),
    Metric(
        key="peak_memory_bytes",
        label="peak memory, MB (PSS)",
        more_is_better=False,
        of=lambda run: run.peak_memory_bytes,
    ),
)


@dataclass(frozen=True, kw_only=True)
class Result:
    """All runs of a comparison, in the order in which they ran, with what they were measured on."""

    settings: Settings
    environment: Environment
    available: int  # images in the dataset
    runs: Sequence[tuple[str, Run]]

    def figures(self, loader: str, metric: Metric) -> list[float]:
        """Every figure of one loader that was measured."""
        found = (metric.of(run) for name, run in self.runs if name == loader)
        return [figure for figure in found if figure is not None]

    def median(self, loader: str, metric: Metric) -> float | None:
        """The median over the rounds; None where nothing was measured."""
        figures = self.figures(loader, metric)
        return median(figures) if figures else None

    def gain(self, metric: Metric) -> float | None:
        """How many times better Headrace's median is than the peer's: above 1 is better, whichever way it counts."""
        own, peer = (self.median(loader, metric) for loader in self.settings.loaders)
        if not own or not peer:
            return None
        return own / peer if metric.more_is_better else peer / own

    @property
    def verdict(self) -> str:
        """The one line to remember."""
        speed = self.gain(METRICS[0])
        cores = f"{self.settings.threads} core" + ("s" if self.settings.threads > 1 else "")
        return f"Headrace: {digits(speed)} × {self.peer} at {cores}"

    @property
    def peer(self) -> str:
        """What it is compared with."""
        return self.settings.against or "torch DataLoader"

    def document(self) -> dict[str, Any]:
        """The comparison as JSON takes it."""
        return {
            "schema": SCHEMA,
            "verdict": self.verdict,
            "settings": asdict(self.settings),
            "images_available": self.available,
            "images_used": min(self.available, FILES_AT_MOST),
            "environment": asdict(self.environment),
            "gain": {metric.key: self.gain(metric) for metric in METRICS},
            "median": {name: self._medians(name) for name in self.settings.loaders},
            "runs": [{"loader": name, **asdict(run)} for name, run in self.runs],
        }

    def _medians(self, loader: str) -> dict[str, float | None]:
        return {metric.key: self.median(loader, metric) for metric in METRICS}


def digits(figure: float | None) -> str:
    """Write a figure with the two or three digits that a run bears: 4.1, 0.85, 132, 2,620; a dash for None."""
    if figure is None:
        return "–"
    if abs(figure) >= 100:
        return f"{figure:,.0f}"
    return f"{figure:.1f}" if abs(figure) >= 1 else f"{figure:.2f}"
