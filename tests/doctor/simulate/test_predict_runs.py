"""Predictions from real runs, beside runs with the change. Batches and steps are slept and burnt, so that only torch's
own ways and the machine's are in question. The long test prints the table; it wants a machine without other work."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from made_work import recorded_in
from observed_runs import KeptRun, Observed, measured, python

from headrace.doctor.simulate import FeedSetup, Prediction, RecordedRun, predicted

pytestmark = pytest.mark.alone


@dataclass(frozen=True)
class Feed:
    """Of a DataLoader."""

    workers: int
    prefetch: int = 2
    persistent: bool = False

    def options(self) -> list[object]:
        options: list[object] = ["--workers", self.workers, "--prefetch", self.prefetch]
        return [*options, "--persistent"] if self.persistent else options

    def of(self, setup: FeedSetup) -> FeedSetup:
        return replace(setup, workers=self.workers, prefetch=self.prefetch, persistent=self.persistent)


@dataclass(frozen=True)
class Case:
    """Milliseconds of batches and steps, as paced_loader.py takes them, and how they are fed."""

    name: str
    pace: dict[str, float]
    feeds: list[Feed]
    steps: int = 40


@dataclass(frozen=True)
class Row:
    """One prediction and what came true."""

    case: str
    before: Feed
    after: Feed
    prediction: Prediction
    true_us: float

    @property
    def error(self) -> float:
        return self.prediction.step_us / self.true_us - 1

    @property
    def is_covered(self) -> bool:
        return self.prediction.low_us <= self.true_us <= self.prediction.high_us

    def __str__(self) -> str:
        low, high = self.prediction.low_us / 1000, self.prediction.high_us / 1000
        return (
            f"{self.case:8} {self.before} -> {self.after}: {self.prediction.step_us / 1000:6.1f} ms "
            f"({low:.1f} to {high:.1f}), true {self.true_us / 1000:6.1f}, {self.error:+.1%}"
        )


CASES = [
    Case("waits", {"sleep": 80, "burn": 6, "device": 40}, [Feed(0), Feed(1), Feed(2), Feed(4)]),
    Case("computes", {"sleep": 60, "burn": 20, "device": 30, "train": 6}, [Feed(0), Feed(1), Feed(2), Feed(4)]),
    Case("rare", {"sleep": 32, "burn": 3, "rare": 20, "device": 30}, [Feed(1), Feed(2), Feed(2, 8), Feed(4)]),
    Case("passes", {"sleep": 40, "burn": 4, "device": 40, "length": 16}, [Feed(1), Feed(2), Feed(2, 2, True), Feed(4)]),
    Case("varies", {"sleep": 90, "burn": 6, "vary": 0.8, "device": 30}, [Feed(1), Feed(2), Feed(3), Feed(4, 4)]),
]


def run(folder: Path, case: Case, feed: Feed) -> RecordedRun:
    """What a measured run leaves, whose windows are as long as a user's."""
    pace: list[Any] = [part for name, value in case.pace.items() for part in (f"--{name}", value)]
    command = python("paced_loader.py", *pace, *feed.options())
    return recorded_of(measured(command, folder, "--steps", str(case.steps), replay_steps=None))


def recorded_of(observed: Observed) -> RecordedRun:
    found = recorded_in(observed.session)
    assert found is not None, observed.out
    return found


def rows(folder: Path, case: Case) -> list[Row]:
    """Each of the case's runs predicted from each other."""
    known = {}
    for number, feed in enumerate(case.feeds):
        (place := folder / f"{case.name}-{number}").mkdir()
        known[feed] = run(place, case, feed)
    return predictions(case.name, known)


def predictions(case: str, known: dict[Feed, RecordedRun]) -> list[Row]:
    return [
        Row(case, before, after, predicted(known[before], after.of(known[before].setup)), known[after].observed_us)
        for before, after in permutations(known, 2)
    ]


@pytest.mark.long
def test_a_second_worker(paced_run: KeptRun, tmp_path: Path) -> None:
    """The cut: one pair of runs whose batches and steps mostly wait, so that a busy machine changes little."""
    one, two = Feed(1), Feed(2)
    command = python("floor.py", "--workers", two.workers, "--truth", tmp_path / "truth.json")
    known = {one: recorded_of(paced_run.observed), two: recorded_of(measured(command, tmp_path, "--steps", "20"))}
    forth, back = predictions("cut", known)
    assert abs(forth.error) <= 0.25, str(forth)
    assert abs(back.error) <= 0.25, str(back)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_runs_are_as_predicted(tmp_path: Path) -> None:
    table = [row for case in CASES for row in rows(tmp_path, case)]
    errors = [abs(row.error) for row in table]
    covered = sum(row.is_covered for row in table) / len(table)
    print(*table, sep="\n")
    print(
        f"{len(table)} predictions: median error {median(errors):.1%}, largest {max(errors):.1%}, {covered:.0%} covered"
    )
    assert median(errors) <= 0.08
    assert max(errors) <= 0.25
    assert covered >= 0.8
