"""What is promised of other numbers of workers, beside runs that had them: recorded pairs of settings of twelve scripts
whose model computes on the cores that its workers need (cases/contended.py).

pytest -m long -s tests/doctor/simulate/test_workers_promises.py      records them anew, and prints the table
RECORD_PAIRS=1 pytest -m long …                              stores them, too: on a machine that does nothing else
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from cases import contended
from machine_findings import quantities
from report_pages import first_gain
from workers_pairs import (
    KINDS,
    NONE_TO_SOME,
    WORKERS,
    Pair,
    Setting,
    coverage,
    coverage_elsewhere,
    keep,
    measured,
    pairs,
    said,
    settings,
    shapes,
)

from headrace.doctor.causes import Prescription, Remedy, diagnose, prescribe
from headrace.doctor.simulate import RecordedRun
from headrace.doctor.simulate.prediction import WORKERS_ERROR

COVERED = 0.8
"""Share of intervals that hold the truth, as promised."""
CHOSEN = 0.9
"""Share of the other scripts' pairs that an interval's error is chosen to cover."""
MEDIAN = 0.12
PROMISES = 20 / 144
"""Least share of the pairs in which a gain is certain."""
RECORDED_S = 3600
SEED = 1
"""Of the scripts that `make test` looks at."""


@pytest.fixture(scope="module", params=[4, pytest.param(12, marks=pytest.mark.long)])
def recorded(request: pytest.FixtureRequest) -> list[Pair]:
    some = random.Random(SEED).sample(shapes(), request.param)
    return [pair for shape in some for pair in pairs(shape, settings(shape))]


def of_kind(found: Sequence[Pair], kind: str) -> list[Pair]:
    return [pair for pair in found if pair.kind == kind]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.one_in(2)
def test_intervals_hold_what_was_measured(recorded: list[Pair], kind: str) -> None:
    found = of_kind(recorded, kind)
    assert len(found) == 3 * len({pair.shape for pair in recorded}) in (12, 36)
    assert coverage(found) >= COVERED
    assert said(found)["median"] <= MEDIAN


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_hold_on_scripts_by_which_they_were_not_chosen(recorded: list[Pair], kind: str) -> None:
    found = of_kind(recorded, kind)
    assert coverage_elsewhere(found, CHOSEN) >= COVERED
    assert sorted(pair.needed for pair in found)[int(CHOSEN * len(found)) - 1] <= WORKERS_ERROR


def test_a_gain_that_is_certain_comes_true(recorded: list[Pair]) -> None:
    promises = [pair for pair in recorded if pair.is_promise]
    assert len(promises) >= PROMISES * len(recorded)
    assert [pair.row() for pair in promises if pair.proved_us >= pair.observed_us] == []


def test_workers_where_there_are_none_are_advised_where_they_gain(recorded: list[Pair]) -> None:
    """Before contention and handing over were simulated, 36 of 51 were to gain, and 16 of those did not."""
    advised = [pair for pair in of_kind(recorded, NONE_TO_SOME) if pair.prediction.speedup > 1.02]
    slow = {"remote", "device", "imagenet_one_thread"} & {pair.shape for pair in recorded}
    assert slow
    assert slow <= {pair.shape for pair in advised}
    assert [pair.row() for pair in advised if pair.proved_us >= pair.observed_us] == []


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "shape", [pytest.param(one, marks=pytest.mark.long if place % 3 else ()) for place, one in enumerate(shapes())]
)
@pytest.mark.long
def test_no_more_workers_than_cores_where_batches_compute(shape: str) -> None:
    """Only the remote store's samples wait for anything but a core."""
    for setting in settings(shape)[:2]:
        found = workers_of(setting)
        if found is None or not found.helps:
            continue
        assert found.changes is not None
        count = found.changes["loaders"]["0"]["num_workers"]
        assert count > 2 if shape.startswith("remote") else count <= 2, found.title
        assert found.confidence == ("high" if setting.workers and is_certain(found) else "medium")


@pytest.mark.one_in(8)
@pytest.mark.parametrize("shape", ["arrays", "captions", "imagenet", "mnist", "segments"])
def test_a_trainer_that_fills_the_cores_needs_no_workers(shape: str) -> None:
    found = workers_of(settings(shape)[0])
    assert found is not None
    assert not found.helps


@pytest.mark.long
def test_the_headline_names_no_remedy_that_may_gain_nothing() -> None:
    """Two workers in place of one are as likely as not to gain something here."""
    (setting,) = (one for one in settings("segments") if one.workers == 1)
    prescription = prescribed(setting)
    uncertain = [one for one in prescription.remedies if one.helps and one.prediction is not None]
    unsure = [one for one in uncertain if not is_certain(one)]
    assert unsure
    assert all(one.title.lower() not in first_gain(prescription).lower() for one in unsure)
    known = unsure[0].prediction
    assert known is not None
    sure = replace(unsure[0], prediction=replace(known, high_us=known.step_us * known.speedup * 0.98))
    assert first_gain(replace(prescription, remedies=[sure]))
    assert first_gain(replace(prescription, remedies=[unsure[0]])) == ""


def test_of_workers_that_wait_more_than_cores_are_of_use() -> None:
    """A batch of the remote store waits 48 of 50 ms."""
    known = {one.workers: one.recorded for one in settings("remote")}
    assert known[0].most_workers() is not None
    assert known[0].most_workers() > 10  # type: ignore[operator]
    computes: RecordedRun = settings("imagenet_light")[0].recorded
    assert computes.most_workers() == 2
    assert replace(computes, setup=replace(computes.setup, cores=None)).most_workers() is None


def test_what_handing_over_is_assumed_to_take_is_said() -> None:
    setting = next(one for one in settings("imagenet_one_thread") if one.workers == 0)
    found = workers_of(setting)
    assert found is not None
    assert found.helps
    assert quantities(found.why) == ["4.6 ms"]


@pytest.mark.alone
@pytest.mark.long
@pytest.mark.timeout(RECORDED_S)
def test_promises_hold_when_recorded_anew(tmp_path: Path) -> None:
    found: list[Pair] = []
    for shape in contended.SHAPES:
        known = [Setting(count, measured(shape, count, tmp_path, tmp_path / "data"), []) for count in WORKERS]
        known = [replace(one, observed_us=[one.recorded.observed_us]) for one in known]
        if os.environ.get("RECORD_PAIRS"):
            keep(shape, known)
        found += pairs(shape, known)
    print("", *(pair.row() for pair in sorted(found, key=lambda pair: -abs(pair.error))), sep="\n")
    for kind in KINDS:
        print(kind, said(of_kind(found, kind)))
    assert coverage(found) >= COVERED


def prescribed(setting: Setting) -> Prescription:
    return prescribe(setting.session, diagnose(setting.session))


def workers_of(setting: Setting) -> Remedy | None:
    """The remedy `workers`; None only where data does not limit the step."""
    prescription = prescribed(setting)
    found = next((one for one in prescription.remedies if one.code == "workers"), None)
    assert found is not None or prescription.stop
    return found


def is_certain(remedy: Remedy) -> bool:
    known = remedy.prediction
    return known is not None and known.high_us < known.step_us * known.speedup
