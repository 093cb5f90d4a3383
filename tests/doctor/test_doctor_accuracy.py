"""Predicted step times beside proved ones, over the scripts with planted faults; and how long a whole diagnosis takes.

pytest -m long -s tests/doctor/test_doctor_accuracy.py      prints the figures of docs/doctor/remedies.md
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from fault_suite import Case, cases, examine

pytestmark = pytest.mark.alone

MEDIAN, MOST, COVERED = 0.08, 0.25, 0.8
"""The median error, the largest, and the least share of intervals that hold the truth."""
WHOLE_S, WHOLE_PROVED_S = 60, 120
"""A diagnosis of a script whose steps take 100 ms, and one with its proofs."""
PROVED_S = 600
DEADLINE_S = 3600


@dataclass(frozen=True)
class Predicted:
    """The mean step with one remedy, or several together, as predicted and as measured, in microseconds."""

    case: str
    remedies: str
    step_us: float
    low_us: float
    high_us: float
    proved_us: float

    @property
    def error(self) -> float:
        """Share of the proved step."""
        return abs(self.step_us - self.proved_us) / self.proved_us

    @property
    def is_covered(self) -> bool:
        return self.low_us <= self.proved_us <= self.high_us


def predicted(case: str, prescription: dict[str, Any]) -> list[Predicted]:
    """Of a document's prescription: those that were both predicted and measured, on a machine that did nothing else, or
    as much of it in both runs."""
    return [
        Predicted(
            case,
            " + ".join(outcome["remedies"]),
            outcome["predicted"]["step_us"],
            outcome["predicted"]["low_us"],
            outcome["predicted"]["high_us"],
            outcome["step_us"],
        )
        for outcome in prescription["outcomes"]
        if outcome["predicted"] is not None and outcome["step_us"] is not None and not outcome["unclear"]
    ]


def median_error(rows: Sequence[Predicted]) -> float:
    return median(row.error for row in rows)


def covered(rows: Sequence[Predicted]) -> float:
    """Share of those whose interval holds what was measured."""
    return sum(row.is_covered for row in rows) / len(rows)


@pytest.mark.long
@pytest.mark.timeout(DEADLINE_S)
def test_predicted_steps_are_those_that_proofs_measure(tmp_path_factory: pytest.TempPathFactory) -> None:
    data = tmp_path_factory.mktemp("planted")
    rows = [row for case in cases() for row in proved(case, tmp_path_factory.mktemp(case.name), data)]
    said = f"median error {median_error(rows):.1%}, the largest {max(row.error for row in rows):.1%}"
    print(f"\n{len(rows)} proofs: {said}, {covered(rows):.0%} within their interval")
    assert median_error(rows) <= MEDIAN
    assert [row for row in rows if row.error > MOST] == []
    assert covered(rows) >= COVERED


def proved(case: Case, folder: Path, data: Path) -> list[Predicted]:
    examined = examine(case, folder, "--prove", data=data, deadline_s=PROVED_S)
    rows = predicted(case.name, examined.document["prescription"])
    print(*rows, sep="\n", flush=True)
    return rows


@pytest.mark.long
@pytest.mark.timeout(2 * PROVED_S)
@pytest.mark.parametrize(
    ("options", "within_s"), [((), WHOLE_S), (("--prove",), WHOLE_PROVED_S)], ids=["diagnosed", "proved"]
)
def test_a_whole_diagnosis_of_hundred_milliseconds_takes_a_minute_and_two_with_proofs(
    tmp_path: Path, options: tuple[str, ...], within_s: float
) -> None:
    started = time.monotonic()
    examined = examine(
        Case("hundred_ms", "planted_making.py", steps=200), tmp_path, *options, data=tmp_path, deadline_s=PROVED_S
    )
    took_s = time.monotonic() - started
    step_us = examined.diagnosis.budgets[0].mean_us
    print(f"\n{took_s:.0f} s for steps of {step_us / 1000:.0f} ms, {len(examined.session.proofs)} proofs among it")
    assert bool(examined.session.proofs) == bool(options)
    assert took_s < within_s
