"""Parts of a batch for several devices, which differ in size: found by the shapes of batches, and priced."""

from __future__ import annotations

import json
import random
import subprocess
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from machine_findings import quantities
from made_prescriptions import helping, is_listed, made, prescribed
from made_sessions import MadeRun
from observed_runs import observe, python
from report_pages import said

from headrace.doctor.causes import diagnose
from headrace.doctor.causes.uneven_ranks import device_parts
from headrace.doctor.measure import main_view_of
from headrace.doctor.probe.look.leaves import BatchShapes
from headrace.doctor.quantities import duration
from headrace.doctor.report.remedy_text import first_screen
from headrace.doctor.session.model import Session

RUN = MadeRun(steps=40, forward=10_000, backward=20_000)
SMALL = "float32[2,3,8,8] int64[2]"
SHAPES = (f"{SMALL} | {SMALL}", f"float32[2,3,24,8] int64[2] | {SMALL}")


def listed(shapes: tuple[str, ...] = SHAPES, batch_size: int = 4, run: MadeRun = RUN) -> Session:
    """Batches in turn of these shapes."""
    session = made(run)
    (trainer,) = session.trainers
    trainer.shapes = list(shapes)
    trainer.gets.shape = [row % len(shapes) for row in range(len(trainer.gets.start))]
    trainer.loaders[0].facts["batch_size"] = batch_size
    return session


def codes(session: Session) -> list[str]:
    return [one.code for one in diagnose(session).findings]


def test_a_step_waits_for_the_largest_part() -> None:
    session = listed()
    (found,) = [one for one in diagnose(session).findings if one.code == "device-parts"]
    assert quantities(found.text)[:3] == ["2", "52 %", "1.34 ×"]
    assert found.weight == pytest.approx(0.2, abs=0.02)
    assert found.text in said(diagnose(session))
    proposed = helping(session, "same-shape")
    assert "BucketBatchSampler" in proposed.hint
    assert proposed.prediction is not None
    assert 1.1 < proposed.prediction.speedup < 1.3


def test_parts_come_first_where_they_cost_more_than_any_stage_of_the_wait() -> None:
    stages = {f"{name}:one": 10_000 for name in ("read", "decode", "transform", "collate")}
    session = listed(run=replace(RUN, workers=1, stages=stages))
    first, second, *_ = (one for one in diagnose(session).findings)
    view = main_view_of(session)
    assert view is not None
    assert first.code == "device-parts"
    assert first.weight > second.weight > 0.02
    assert (view.wait_share or 0.0) > first.weight


def test_parts_are_on_the_first_screen_beside_a_longer_wait() -> None:
    session = listed(run=replace(RUN, stages={"decode:one": 120_000}))
    diagnosis = diagnose(session)
    (found,) = [one for one in diagnosis.findings if one.code == "device-parts"]
    assert 0.05 < found.weight < diagnosis.findings[0].weight
    assert found.text in first_screen(diagnosis, prescribed(session)).bullets


def test_parts_that_gain_little_beside_slow_workers_have_their_prediction() -> None:
    session = listed(run=replace(RUN, stages={"decode:one": 56_000}))
    found = helping(session, "same-shape").prediction
    assert found is not None
    assert 1.02 < found.speedup < 1.1
    recommendation = first_screen(diagnose(session), prescribed(session)).recommendation
    assert recommendation is not None
    assert quantities(recommendation.speed) == [duration(found.step_us)]


@pytest.mark.parametrize(
    ("least_us", "held_us"),
    [(0, 0), (8_000, 0), (0, 50_000)],
    ids=["all of a step", "a part of a step", "some steps held up"],
)
def test_what_a_step_loses_follows_from_the_times_of_large_and_small_parts(least_us: int, held_us: int) -> None:
    """A step takes 2 µs for each pixel of its largest part, and `least_us` besides; its data is at hand.

    Other programs hold up one step in twelve.
    """
    sizes = [(2 * random.Random(step).randrange(2_500, 10_000), 11_000) for step in range(60)]
    work = {step: 2 * max(pair) + held_us * (step % 12 == 5) for step, pair in enumerate(sizes)}
    session = made(MadeRun(steps=60, forward=0, backward=least_us, optimizer=0, more_forward=work))
    (trainer,) = session.trainers
    trainer.shapes = [" | ".join(f"float32[2,1,1,{size // 2}]" for size in pair) for pair in sizes]
    trainer.gets.shape = list(range(60))
    trainer.loaders[0].facts["batch_size"] = 2
    (found,) = [one for one in diagnose(session).findings if one.code == "device-parts"]
    view = main_view_of(session)
    assert view is not None
    parts = device_parts(view)
    assert parts is not None
    measured = sizes[-len(view.training.steps) :]
    lost_us = fmean(2 * (max(pair) - fmean(pair)) for pair in measured)
    assert parts.lost_us == pytest.approx(lost_us, rel=0.02)
    proposed = helping(session, "same-shape")
    assert proposed.prediction is not None
    assert proposed.prediction.step_us == pytest.approx(parts.own_us - lost_us, rel=0.03)
    assert found.text in said(diagnose(session))
    assert not prescribed(session).stop


@pytest.mark.alone
def test_a_scripts_own_figures_are_those_of_the_finding_and_of_its_remedy(tmp_path: Path) -> None:
    runs = {name: tmp_path / name for name in ("unequal", "equal")}
    observed = observe(python("unequal_parts.py", runs["unequal"]), tmp_path)
    subprocess.run([*python("unequal_parts.py", runs["equal"]), "--equal"], check=True)
    unequal, equal = (json.loads(path.read_text()) for path in runs.values())
    view = main_view_of(observed.session)
    assert view is not None
    parts = device_parts(view)
    assert parts is not None
    assert parts.lost_us == pytest.approx(unequal["lost_us"], rel=0.15)
    proposed = helping(observed.session, "same-shape")
    assert proposed.prediction is not None
    waited_us = fmean(step.duration for step in view.training.steps) - parts.own_us  # outside the script's own figure
    assert proposed.prediction.step_us - waited_us == pytest.approx(equal["step_us"], rel=0.15)
    assert parts.text in said(observed.diagnosis)
    assert not prescribed(observed.session).stop


SAMPLES = ("float32[3,8,8] int64[2]| float32[3,24,8] int64[5]",)


@pytest.mark.parametrize(
    ("session", "is_found"),
    [(listed(("float32[4,8] int64[4]",)), False), (listed(SAMPLES, batch_size=2), False), (listed(batch_size=2), True)],
    ids=["a pair", "samples", "the dataset makes the parts"],
)
def test_samples_are_no_parts_for_devices(session: Session, is_found: bool) -> None:
    assert ("device-parts" in codes(session)) == is_found


@pytest.mark.parametrize(
    ("batch", "parts"),
    [
        ([{"a": torch.zeros(2, 3)}, {"a": torch.zeros(4, 3)}], 2),
        ([{"a": torch.zeros(2)}, {"b": torch.zeros(2)}], 1),
        ([torch.zeros(2), torch.zeros(2)], 1),
        ({"a": torch.zeros(2), "b": torch.zeros(2)}, 1),
    ],
    ids=["a list of dicts", "other keys", "a pair", "a dict"],
)
def test_the_probe_names_the_parts_of_a_batch(batch: Any, parts: int) -> None:
    names: list[str] = []
    BatchShapes(lambda text: names.append(text) or 0).of(batch)
    assert [name.count("|") + 1 for name in names] == [parts]


def test_parts_of_one_size_gain_nothing() -> None:
    session = listed(shapes=SHAPES[:1])
    assert "device-parts" not in codes(session)
    assert not is_listed(session, "same-shape")
