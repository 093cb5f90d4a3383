"""Twelve mixtures of known stages: the doctor's shares are those that the scripts measured of themselves.

pytest -m long -s tests/doctor/test_doctor_truth.py      prints how far each is off
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from observed_runs import Observed, observe, python

from headrace.doctor.measure.diagnosis import Diagnosis

pytestmark = pytest.mark.alone

SHARE = 0.05
"""Most that a share may be off: five percentage points, of the stages that a script can see, or of all where it cannot
(what pickling costs it)."""
WHOLE = 0.02
"""Most that what is attributed, and named as other, may differ from the whole."""

OF_LIBRARIES = ("sentences", "augmented", "everything")
"""Cases whose imports are slow: scripts of their own."""
Shares = dict[str, float]


@dataclass(frozen=True)
class Mixture:
    """One of the cases, and how it is run."""

    case: str
    workers: int
    start: str
    options: tuple[object, ...] = ()

    @property
    def name(self) -> str:
        return "-".join(map(str, [self.case, self.workers, self.start, *self.options]))

    def command(self, truth: object, steps: int) -> list[str]:
        shape = ("--workers", self.workers, "--start", self.start, "--steps", steps, "--truth", truth)
        script = [f"{self.case}.py"] if self.case in OF_LIBRARIES else ["known_mixtures.py", self.case]
        return python(*script, *shape, *self.options)


MIXTURES = [
    Mixture("images", 2, "fork"),
    Mixture("images", 0, "fork"),
    Mixture("images", 1, "spawn", ("--compute", 12)),
    Mixture("tar_members", 2, "fork"),
    Mixture("tar_members", 1, "forkserver"),
    Mixture("sentences", 1, "fork"),
    Mixture("augmented", 2, "spawn"),
    Mixture("slow_collate", 4, "fork"),
    Mixture("large_pickle", 1, "fork"),
    Mixture("stream", 4, "fork"),
    Mixture("accumulated", 2, "fork"),
    Mixture("everything", 4, "spawn"),
]
QUICK = [mixture for mixture in MIXTURES if mixture.case in ("images", "tar_members", "slow_collate", "large_pickle")]


@dataclass(frozen=True)
class OwnFigures:
    """Sums over a run, in microseconds."""

    wall: dict[str, float]
    """Of each stage, all makers together."""
    steps: list[dict[str, float]]
    """The parts of each step, in order."""

    @classmethod
    def read(cls, folder: Path) -> OwnFigures:
        wall: dict[str, float] = defaultdict(float)
        steps = []
        for path in folder.glob("*.jsonl"):
            for kind, name, *values in map(json.loads, path.read_text().splitlines()):
                if kind == "stage":
                    wall[name] += values[0]
                else:
                    steps.append(values[0])
        return cls(dict(wall), steps)

    def of_steps(self, numbers: Sequence[int]) -> Shares:
        """Means of their parts: of those that the doctor measured, say, which rests in some."""
        return {name: value / len(numbers) for name, value in _sum([self.steps[at] for at in numbers]).items()}


def shares(parts: Mapping[str, float]) -> Shares:
    whole = sum(parts.values())
    return {name: value / whole for name, value in parts.items()}


def stage_shares(diagnosis: Diagnosis) -> Shares:
    """By category, of the makers' busy time, as the doctor says."""
    sums: dict[str, float] = defaultdict(float)
    for part in diagnosis.batch_production[0].stages:
        sums[part.category] += part.share
    return dict(sums)


def step_shares(diagnosis: Diagnosis) -> Shares:
    return {part.name: part.share for part in diagnosis.budgets[0].parts}


def _sum(steps: list[dict[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for parts in steps:
        for name, value in parts.items():
            sums[name] += value
    return dict(sums)


def run(mixture: Mixture, folder, steps: int) -> tuple[Observed, OwnFigures]:
    truth = folder / "truth"
    observed = observe(mixture.command(truth, steps), folder)
    assert observed.status == 0, observed.error
    return observed, OwnFigures.read(truth)


def check(mixture: Mixture, observed: Observed, own: OwnFigures) -> None:
    stages, parts = stage_shares(observed.diagnosis), step_shares(observed.diagnosis)
    budget = observed.diagnosis.budgets[0]
    own_step = own.of_steps(observed.session.trainers[0].steps.number[-budget.steps :])
    own_stages, own_parts = shares(own.wall), shares(own_step)
    off = {name: stages[name] for name in stages.keys() - own_stages}
    seen = shares({name: stages.get(name, 0.0) for name in own_stages})
    off |= {name: abs(seen[name] - own_stages[name]) for name in own_stages}
    off["data wait"] = abs(parts["data wait"] - own_parts["data wait"])
    farthest = max(off, key=lambda name: off[name])
    print(f"\n{mixture.name}: {farthest} is off by {off[farthest] * 100:.1f} points")
    assert off[farthest] <= SHARE
    assert sum(stages.values()) == pytest.approx(1, abs=WHOLE)
    assert sum(part.us for part in budget.parts) == pytest.approx(sum(own_step.values()), rel=WHOLE)


@pytest.mark.parametrize("mixture", random.Random(22).sample(QUICK, 1), ids=lambda mixture: mixture.name)
def test_shares_are_those_that_the_script_measured(mixture, tmp_path):
    check(mixture, *run(mixture, tmp_path, 40))


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mixture", MIXTURES, ids=lambda mixture: mixture.name)
def test_shares_of_all_mixtures_are_those_that_the_scripts_measured(mixture, tmp_path):
    check(mixture, *run(mixture, tmp_path, 120))
