"""Parts of a batch for several devices, which differ in size: found by the shapes of batches, and priced."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from machine_findings import quantities
from made_prescriptions import helping, is_listed, made
from made_sessions import MadeRun
from report_pages import said

from headrace.doctor.causes import diagnose
from headrace.doctor.causes.uneven_ranks import device_parts
from headrace.doctor.measure import main_view_of
from headrace.doctor.probe.look.leaves import BatchShapes
from headrace.doctor.session.model import Session

RUN = MadeRun(steps=40, forward=10_000, backward=20_000)
SHAPES = (
    "float32[2,3,8,8] int64[2] | float32[2,3,8,8] int64[2]",
    "float32[2,3,24,8] int64[2] | float32[2,3,8,8] int64[2]",
)


def listed(shapes: tuple[str, ...] = SHAPES, batch_size: int = 4) -> Session:
    """Batches in turn of these shapes."""
    session = made(RUN)
    (trainer,) = session.trainers
    trainer.shapes = list(shapes)
    trainer.gets.shape = [row % len(shapes) for row in range(len(trainer.gets.start))]
    trainer.loaders[0].facts["batch_size"] = batch_size
    return session


def codes(session: Session) -> list[str]:
    return [one.code for one in diagnose(session).findings]


def test_parts_are_compared_by_their_elements() -> None:
    session = listed()
    view = main_view_of(session)
    assert view is not None
    found = device_parts(view)
    assert found is not None
    larger, smaller = 2 * 3 * 24 * 8 + 2, 2 * 3 * 8 * 8 + 2
    assert (found.count, found.example) == (2, (larger, smaller))
    assert found.share == pytest.approx(1 / 2, abs=0.02)
    assert found.uneven == pytest.approx(1 + found.share * (2 * larger / (larger + smaller) - 1))


def test_a_step_waits_for_the_largest_part() -> None:
    session = listed()
    (found,) = [one for one in diagnose(session).findings if one.code == "device-parts"]
    assert quantities(found.text)[:2] == ["2", "52 %"]
    assert quantities(found.text)[-1:] == ["1.26 ×"]
    assert found.weight == pytest.approx(0.2, abs=0.02)
    assert found.text in said(diagnose(session))
    proposed = helping(session, "same-shape")
    assert "BucketBatchSampler" in proposed.hint
    assert proposed.prediction is not None
    assert 1.1 < proposed.prediction.speedup < 1.25


@pytest.mark.parametrize(
    "session", [listed(("float32[4,8] int64[4]",)), listed(batch_size=2)], ids=["a pair", "samples"]
)
def test_other_structures_are_no_parts_for_devices(session: Session) -> None:
    assert "device-parts" not in codes(session)


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
