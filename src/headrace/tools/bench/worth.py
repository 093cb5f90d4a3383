"""What may or may not pay on a machine: named comparisons, and what their figures say. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

from headrace.bench.environment import Environment
from headrace.tools.bench.settings import Settings

SCHEMA = 1
T_95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}
"""Student's t for 95 %, two-sided, by degrees of freedom; for more of them, the normal distribution's."""
NORMAL_95 = 1.96
LEAST_GAIN = 0.02
"""Below which a gain is none: two runs of one program differ by as much."""
TOO_NOISY = 0.25
"""Half an interval from which nothing is said."""


@dataclass(frozen=True)
class Comparison:
    """One technique against doing without it."""

    key: str
    title: str
    """What is asked to pay."""
    without: str
    """Sides of bench/sides.py."""
    with_it: str
    basis: str
    """What was compared, in a sentence."""


COMPARISONS = (
    Comparison(
        "asynchronous",
        "one worker ahead of the training loop",
        "inline",
        "one-worker",
        "A DataLoader with num_workers=1 beside one with num_workers=0, over a Pillow dataset.",
    ),
    Comparison(
        "threads",
        "Headrace on all cores, several batches ahead",
        "one-thread",
        "all-threads",
        "Headrace with all threads beside threads=1, prefetch=1.",
    ),
    Comparison(
        "processes",
        "worker processes in place of threads",
        "thread-workers",
        "process-workers",
        "A DataLoader beside headrace.ThreadDataLoader, as many workers each, over the same Pillow dataset.",
    ),
    Comparison(
        "page-cache",
        "files in memory (staging, or more RAM for the page cache)",
        "dropped",
        "inline",
        "Files that the kernel keeps in memory beside the same files dropped from it before each read.",
    ),
    Comparison(
        "decoded-cache",
        "keeping decoded images",
        "inline",
        "decoded",
        "The most that any cache of decoded images gives: all of them in the process's memory, beside decoding them.",
    ),
    Comparison(
        "loader-cache",
        "cache= of a Loader",
        "shrunk",
        "shrunk-kept",
        "Headrace with Image(shrink_to=256) and cache=, all found, beside the same without cache=.",
    ),
    Comparison(
        "pinning",
        "pinned memory",
        "pageable-copies",
        "pinned-copies",
        "Batches pinned by a thread and copied to the device, beside copies from where they lie.",
    ),
)


@dataclass(frozen=True)
class Verdict:
    """What the rounds of a comparison come to."""

    ratio: float
    """Rate with it over rate without, the geometric mean of the rounds."""
    low: float
    high: float
    """What it lies between in 95 of 100 cases; from 0 to infinity of one round."""

    @property
    def noise(self) -> float:
        """Half of the interval, as a share."""
        return math.inf if math.isinf(self.high) else math.sqrt(self.high / self.low) - 1

    @property
    def pays(self) -> bool | None:
        """None where the rounds are too far apart to tell."""
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
        return f"does not pay here: {figure}, within the noise of {_percent(max(self.noise, LEAST_GAIN))}"


def verdict(without: Sequence[float], with_it: Sequence[float]) -> Verdict:
    """Of the rates of each, round by round: the two of a round ran one after the other."""
    logarithms = [math.log(after / before) for before, after in zip(without, with_it, strict=True)]
    mean = fmean(logarithms)
    if len(logarithms) < 2:
        return Verdict(math.exp(mean), 0.0, math.inf)
    half = T_95.get(len(logarithms) - 1, NORMAL_95) * stdev(logarithms) / math.sqrt(len(logarithms))
    return Verdict(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


@dataclass(frozen=True, kw_only=True)
class Worth:
    """All comparisons of one machine and dataset."""

    settings: Settings
    environment: Environment
    rates: Mapping[str, Sequence[float]]
    """Images a second of each side, round by round."""
    not_measured: Mapping[str, str]
    """By key, why."""

    def verdicts(self) -> dict[str, Verdict]:
        """By key, of those that were measured."""
        return {
            one.key: verdict(self.rates[one.without], self.rates[one.with_it])
            for one in COMPARISONS
            if one.key not in self.not_measured
        }

    @property
    def headline(self) -> str:
        """The one line to remember."""
        verdicts = self.verdicts()
        idle = [one.title for one in COMPARISONS if one.key in verdicts and verdicts[one.key].pays is False]
        return f"Does not pay here: {'; '.join(idle)}." if idle else "Nothing was shown not to pay here."

    def document(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {
            "schema": SCHEMA,
            "headline": self.headline,
            "settings": asdict(self.settings),
            "environment": asdict(self.environment),
            "comparisons": [self._one(one) for one in COMPARISONS],
        }

    def _one(self, one: Comparison) -> dict[str, Any]:
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


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
