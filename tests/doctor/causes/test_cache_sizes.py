"""The doctor's figure for a sample at the cut is what `cached` keeps of it, and the cache really holds that many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from made_prescriptions import made, with_batches, with_survey
from made_sessions import MadeRun
from PIL import Image

import headrace as hr
from headrace.doctor.causes.case import case_of
from headrace.doctor.causes.decoding import cut_of, sample_bytes
from headrace.doctor.causes.findings import diagnose
from headrace.doctor.edits.script_source import ScriptSources
from headrace.doctor.measure.batches import Join
from headrace.doctor.measure.view import TrainerView
from headrace.doctor.session.after_run import Calibration, MachineSurvey
from headrace.doctor.session.model import Session
from headrace.dropins.sample_encoding import encode_sample

HEIGHT, WIDTH = 240, 320
DECODED = MadeRun(stages={"decode:Pillow load": 9_000, "transform:RandomResizedCrop": 500}, facts={"length": 10})
RESIZED = MadeRun(
    stages={"decode:Pillow load": 4_000, "transform:Resize": 4_000, "transform:ColorJitter": 2_000},
    facts={"length": 10},
)


JITTERED = MadeRun(
    stages={"decode:Pillow load": 9_000, "transform:Pillow convert": 9_000, "transform:RandomResizedCrop": 500},
    facts={"length": 10},
)
"""A conversion comes before the crop, be it within a ColorJitter."""


def sizes_told(session: Session) -> float:
    (trainer,) = session.trainers
    case = case_of(
        session, diagnose(session), TrainerView.of(session, trainer, Join(session)), ScriptSources({}.get, "/home/ada")
    )
    assert case is not None
    told = sample_bytes(case, cut_of(case))
    assert told is not None
    return told


def decoded() -> tuple[Session, Any]:
    """Decoded once more after the run; kept as Pillow's."""
    timed = Calibration("cache", "image", ["/data/0.jpg"], pixel_bytes=[HEIGHT * WIDTH * 3])
    return with_survey(made(DECODED), MachineSurvey(calibrations=[timed])), Image.new("RGB", (WIDTH, HEIGHT))


def in_bytes() -> tuple[Session, Any]:
    shape = f"uint8[4,3,{HEIGHT},{WIDTH}]"
    return with_batches(made(RESIZED), shape, 4 * 3 * HEIGHT * WIDTH), torch.zeros(3, HEIGHT, WIDTH, dtype=torch.uint8)


def in_floats() -> tuple[Session, Any]:
    """Images of floats were bytes before, and that is how the remedy says to keep them."""
    shape = f"float32[4,3,{HEIGHT},{WIDTH}]"
    pixels = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    return with_batches(made(RESIZED), shape, 4 * 3 * HEIGHT * WIDTH * 4), pixels


def in_floats_that_are_no_image() -> tuple[Session, Any]:
    return with_batches(made(RESIZED), "float32[4,1000,64]", 4 * 64_000 * 4), torch.zeros(1000, 64)


KINDS = [decoded, in_bytes, in_floats, in_floats_that_are_no_image]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_both_say_the_same(kind):
    session, sample = kind()
    assert len(encode_sample(sample, 0)) == pytest.approx(sizes_told(session), rel=0.01)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_cache_of_the_size_that_was_told_holds_all(kind):
    """With the index, which is small beside it."""
    session, sample = kind()
    told, count = sizes_told(session), 8
    dataset = hr.cached([sample] * count, cache=f"ram:{int(told * count * 1.03)}B")
    list(dataset)
    assert (dataset.stats().admitted, dataset.stats().stopped) == (count, None)


@pytest.mark.parametrize("run", [DECODED, JITTERED], ids=["decoded", "converted"])
def test_what_is_cropped_after_the_cut_is_not_as_small_as_in_a_batch(run):
    timed = Calibration("cache", "image", ["/data/0.jpg"], pixel_bytes=[HEIGHT * WIDTH * 3])
    session = with_batches(made(run), "uint8[4,3,32,32]", 4 * 3 * 32 * 32)
    assert sizes_told(with_survey(session, MachineSurvey(calibrations=[timed]))) == HEIGHT * WIDTH * 3
