"""`headrace bench --worth`: measurement of the techniques that pay off on this machine."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

from rich.console import Console

from headrace.errors import UsageError
from headrace.tools.bench.comparison import ASCII, BenchEnvironment, available_images, environment, machine
from headrace.tools.bench.runs import BenchRun, one_run
from headrace.tools.bench.settings import CROP_PX, BenchSettings, list_images

SCHEMA = 1
T_95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}
"""Student's t for 95 %, two-sided, by degrees of freedom; beyond the table, use `NORMAL_95`."""
NORMAL_95 = 1.96
LEAST_GAIN = 0.02
"""Minimum relevant gain: two runs of the same program differ by this much."""
TOO_NOISY = 0.25
"""Relative half-width of an interval above which the result is inconclusive."""


@dataclass(frozen=True)
class WorthComparison:
    """Comparison of one technique with its absence."""

    key: str
    title: str
    """Name of the technique."""
    without: str
    """Side (see bench/peer.py) without the technique; `with_it` is the side with it."""
    with_it: str
    basis: str
    """One sentence that describes the two sides."""


COMPARISONS = (
    WorthComparison(
        "asynchronous",
        "one worker ahead of the training loop",
        "inline",
        "one-worker",
        "A DataLoader with num_workers=1 beside one with num_workers=0, over a Pillow dataset.",
    ),
    WorthComparison(
        "threads",
        "Headrace on all cores, several batches ahead",
        "one-thread",
        "all-threads",
        "Headrace with all threads beside threads=1, prefetch=1.",
    ),
    WorthComparison(
        "processes",
        "worker processes in place of threads",
        "thread-workers",
        "process-workers",
        "A DataLoader beside headrace.ThreadDataLoader, as many workers each, over the same Pillow dataset.",
    ),
    WorthComparison(
        "page-cache",
        "files in memory (staging, or more RAM for the page cache)",
        "dropped",
        "inline",
        "Files that the kernel keeps in memory beside the same files dropped from it before each read.",
    ),
    WorthComparison(
        "decoded-cache",
        "keeping decoded images",
        "inline",
        "decoded",
        "The most that any cache of decoded images gives: all of them in the process's memory, beside decoding them.",
    ),
    WorthComparison(
        "loader-cache",
        "cache= of a Loader",
        "shrunk",
        "shrunk-kept",
        "Headrace with Image(shrink_to=256) and cache=, all found, beside the same without cache=.",
    ),
    WorthComparison(
        "pinning",
        "pinned memory",
        "pageable-copies",
        "pinned-copies",
        "Batches pinned by a thread and copied to the device, beside copies from where they lie.",
    ),
)


@dataclass(frozen=True)
class WorthVerdict:
    """Result of a comparison over all rounds."""

    ratio: float
    """Geometric mean over the rounds of the rate with the technique divided by the rate without it."""
    low: float
    high: float
    """Bounds of the 95 % confidence interval of `ratio`; 0 and infinity for a single round."""

    @property
    def noise(self) -> float:
        """Relative half-width of the interval."""
        return math.inf if math.isinf(self.high) else math.sqrt(self.high / self.low) - 1

    @property
    def pays(self) -> bool | None:
        """True if the technique pays off; None if the rounds vary too much to decide."""
        if self.low > 1 and self.ratio > 1 + LEAST_GAIN:
            return True
        return None if self.noise > TOO_NOISY and self.high > 1 + LEAST_GAIN else False

    def __str__(self) -> str:
        figure = f"{self.ratio:.2f} ×"
        if self.pays is None:
            apart = " in one round" if math.isinf(self.noise) else f" ({self.low:.2f} to {self.high:.2f})"
            return f"cannot be told: {figure}{apart}; more --rounds tell"
        if self.pays:
            return f"pays here: {figure} ({self.low:.2f} to {self.high:.2f})"
        if self.high < 1 - LEAST_GAIN / 2:
            return f"costs here: {figure} ({self.low:.2f} to {self.high:.2f})"
        return f"does not pay here: {figure}, within the noise of {100 * max(self.noise, LEAST_GAIN):.0f} %"


def verdict(without: Sequence[float], with_it: Sequence[float]) -> WorthVerdict:
    """Compare the rates of two sides, paired by round."""
    logarithms = [math.log(after / before) for before, after in zip(without, with_it, strict=True)]
    mean = fmean(logarithms)
    if len(logarithms) < 2:
        return WorthVerdict(math.exp(mean), 0.0, math.inf)
    half = T_95.get(len(logarithms) - 1, NORMAL_95) * stdev(logarithms) / math.sqrt(len(logarithms))
    return WorthVerdict(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


@dataclass(frozen=True, kw_only=True)
class Worth:
    """All comparisons of one machine and dataset."""

    settings: BenchSettings
    environment: BenchEnvironment
    rates: Mapping[str, Sequence[float]]
    """Images per second by side, one value per round."""
    not_measured: Mapping[str, str]
    """Reason for each skipped comparison, by key."""

    def verdicts(self) -> dict[str, WorthVerdict]:
        """Return the verdicts of the measured comparisons by key."""
        return {
            one.key: verdict(self.rates[one.without], self.rates[one.with_it])
            for one in COMPARISONS
            if one.key not in self.not_measured
        }

    @property
    def headline(self) -> str:
        """One-line summary."""
        verdicts = self.verdicts()
        idle = [one.title for one in COMPARISONS if one.key in verdicts and verdicts[one.key].pays is False]
        return f"Does not pay here: {'; '.join(idle)}." if idle else "Nothing was shown not to pay here."

    def document(self) -> dict[str, Any]:
        """Return the figures as a JSON document."""
        return {
            "schema": SCHEMA,
            "headline": self.headline,
            "settings": asdict(self.settings),
            "environment": asdict(self.environment),
            "comparisons": [self._one(one) for one in COMPARISONS],
        }

    def _one(self, one: WorthComparison) -> dict[str, Any]:
        found = self.verdicts().get(one.key)
        return {
            "key": one.key,
            "basis": one.basis,
            "not_measured": self.not_measured.get(one.key),
            "ratio": None if found is None else found.ratio,
            "low": None if found is None or math.isinf(found.high) else found.low,
            "high": None if found is None or math.isinf(found.high) else found.high,
            "pays": None if found is None else found.pays,
            "images_per_s": {side: list(self.rates.get(side, [])) for side in (one.without, one.with_it)},
        }


OneRun = Callable[[BenchSettings, str, int], BenchRun]


def measured_run(settings: BenchSettings, side: str, round_number: int) -> BenchRun:
    """Run one side in a worker."""
    return BenchRun(**one_run(settings, side, round_number))


def sides(not_measured: Iterable[str]) -> list[str]:
    """Return the distinct sides of the measured comparisons, which may share sides."""
    wanted = [one for one in COMPARISONS if one.key not in set(not_measured)]
    return list(dict.fromkeys(side for one in wanted for side in (one.without, one.with_it)))


def why_not_measured(settings: BenchSettings, *, has_cuda: bool, can_be_dropped: bool) -> dict[str, str]:
    """Return the reasons against comparisons that cannot be measured, by key."""
    found = {}
    if settings.threads < 2:
        found["threads"] = "there is one core"
    if not can_be_dropped:
        found["page-cache"] = "the kernel keeps these files in memory, or cannot tell: they lie in RAM as it is"
    if not has_cuda:
        found["pinning"] = "no CUDA device"
    return found


def rounds(
    settings: BenchSettings, not_measured: Iterable[str], *, run: OneRun = measured_run
) -> Iterator[tuple[str, float]]:
    """Yield (side, images per second) as each run finishes, round by round."""
    for number in range(settings.rounds):
        for side in sides(not_measured):
            yield side, run(settings, side, number).images_per_s


def preflight(settings: BenchSettings) -> dict[str, str]:
    """Check the prerequisites; return the reasons against comparisons that cannot be measured, by key."""
    if settings.against is not None:
        raise UsageError("--worth looks at this machine, --against at a loader of yours: expected one of them")
    available_images(settings)
    import torch

    from headrace.tools.bench.peer import can_be_dropped

    # Every file is tested, since the test also flushes files that were just written.
    files = dict.fromkeys(place for place, _ in list_images(settings.path).files)
    dropped = [can_be_dropped(place) for place in files]
    return why_not_measured(settings, has_cuda=torch.cuda.is_available(), can_be_dropped=all(dropped))


def worth(settings: BenchSettings, not_measured: dict[str, str], measured: Iterable[tuple[str, float]]) -> Worth:
    """Collect the rates of all rounds."""
    rates: dict[str, list[float]] = defaultdict(list)
    for side, rate in measured:
        rates[side].append(rate)
    return Worth(settings=settings, environment=environment(), rates=rates, not_measured=not_measured)


def show_worth(worth: Worth, console: Console) -> None:
    """Print the comparisons, in ASCII if the terminal supports nothing else."""
    signs = ASCII if console.options.ascii_only else {}
    console.print(f"[bold]{worth.headline.translate(signs)}[/bold]\n", highlight=False)
    verdicts = worth.verdicts()
    for one in COMPARISONS:
        found = verdicts.get(one.key)
        said = f"not measured: {worth.not_measured[one.key]}" if found is None else str(found)
        colour = "" if found is None or found.pays is None else "green" if found.pays else "yellow"
        for text, style in ((f"{one.title}: {said}", colour), (f"    {one.basis}", "dim")):
            console.print(text.translate(signs), style=style, highlight=False, markup=False)
    console.print(_conditions(worth), highlight=False, markup=False, soft_wrap=True)


def _conditions(worth: Worth) -> str:
    settings = worth.settings
    step = f", then a step of {settings.step_ms:g} ms that waits" if settings.step_ms else ", and no training"
    return (
        f"\nRandomResizedCrop({CROP_PX}) + flip to {settings.output}, batch {settings.batch_size}{step}; "
        f"{settings.threads} cores; {settings.rounds} rounds, intervals of 95 %.\n{machine(worth.environment)}"
    )
