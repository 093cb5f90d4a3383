"""Predicted step times beside proved ones, over the scripts with planted faults; and how long a whole diagnosis takes.

pytest -m long -s tests/doctor/test_doctor_accuracy.py      prints the tables of docs/doctor/remedies.md
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from fault_suite import Case, cases, examine
from predicted_steps import Predicted, covered, median_error, predicted, table

pytestmark = pytest.mark.alone

MEDIAN, MOST, COVERED = 0.08, 0.25, 0.8
"""The median error, the largest, and the least share of intervals that hold the truth."""
WHOLE_S, WHOLE_PROVED_S = 60, 120
"""A diagnosis of a script whose steps take 100 ms, and one with its proofs."""
PROVED_S = 600
DEADLINE_S = 3600


def outcome(step_us: float, proved_us: float | None, *, spread: float = 1_000) -> dict[str, object]:
    prediction = {"step_us": step_us, "low_us": step_us - spread, "high_us": step_us + spread, "speedup": 2.0}
    return {"remedies": ["workers", "prefetch"], "predicted": prediction, "step_us": proved_us, "disturbed_by": None}


def test_errors_and_coverage_are_those_of_the_proofs() -> None:
    disturbed = {**outcome(10_000, 90_000), "disturbed_by": 1.5}
    outcomes = [outcome(10_000, 10_500), outcome(10_000, 20_000), outcome(10_000, None), disturbed]
    rows = predicted("tar", {"outcomes": [*outcomes, {**outcome(1, 2), "predicted": None}]})
    assert [row.proved_us for row in rows] == [10_500, 20_000]
    assert median_error(rows) == pytest.approx((500 / 10_500 + 0.5) / 2)
    assert covered(rows) == 0.5
    assert table(rows).splitlines()[2:] == [
        "| tar | workers + prefetch | 20.0 | – | 10.0 | 20.0 | 50.0% | 9.0 to 11.0 (not) |",
        "| tar | workers + prefetch | 20.0 | – | 10.0 | 10.5 | 4.8% | 9.0 to 11.0 |",
    ]


@pytest.mark.long
@pytest.mark.timeout(DEADLINE_S)
def test_predicted_steps_are_those_that_proofs_measure(tmp_path_factory: pytest.TempPathFactory) -> None:
    data = tmp_path_factory.mktemp("planted")
    rows = [row for case in cases() for row in proved(case, tmp_path_factory.mktemp(case.name), data)]
    print("", table(rows), sep="\n")
    said = f"median error {median_error(rows):.1%}, the largest {max(row.error for row in rows):.1%}"
    print(f"\n{len(rows)} proofs: {said}, {covered(rows):.0%} within their interval")
    assert median_error(rows) <= MEDIAN
    assert [row for row in rows if row.error > MOST] == []
    assert covered(rows) >= COVERED


def proved(case: Case, folder: Path, data: Path) -> list[Predicted]:
    examined = examine(case, folder, "--prove", data=data, deadline_s=PROVED_S)
    rows = predicted(case.name, examined.document["prescription"])
    print(*(row.row() for row in rows), sep="\n", flush=True)
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
    examined = examine(Case("hundred_ms", (), steps=200), tmp_path, *options, data=tmp_path, deadline_s=PROVED_S)
    took_s = time.monotonic() - started
    step_us = examined.diagnosis.budgets[0].mean_us
    print(f"\n{took_s:.0f} s for steps of {step_us / 1000:.0f} ms, {len(examined.session.proofs)} proofs among it")
    assert bool(examined.session.proofs) == bool(options)
    assert took_s < within_s
