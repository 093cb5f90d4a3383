"""What the doctor says that a cache would take is what a Loader's cache takes of the same samples."""

from __future__ import annotations

import os

import pytest
from loader_data import write_folder
from made_prescriptions import helping, made, with_survey
from made_sessions import MadeRun

import headrace as hr
from headrace.doctor.quantities import size
from headrace.doctor.session.after_run import Calibration, MachineSurvey

COUNT = 8


def bytes_a_sample(folder, view, dtype):
    """Of what is kept, without the index."""
    loader = hr.Loader(
        folder,
        {"image": hr.Image(dtype=dtype)},
        view=view,
        batch_size=1,
        output="numpy",
        cache=f"ram:{20_000_000 + os.getpid()}B",
    )
    empty = loader._feed.cache.stats().used_bytes
    list(loader)
    stats = loader.stats().cache
    assert stats.admitted == COUNT
    return (stats.used_bytes - empty) / COUNT


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("sizes"), COUNT)


def test_after_decoding(folder):
    """The mean of images of several sizes, which the doctor has decoded once more after the run."""
    kept = bytes_a_sample(folder, None, "uint8")
    stages = {"decode:Pillow load": 8_000, "transform:RandomResizedCrop": 500}
    pixels = [3 * (48 + 5 * (number % 7)) * (40 + 3 * (number % 11)) for number in range(COUNT)]
    files = [f"/data/{number}.png" for number in range(COUNT)]
    timed = Calibration("cache", "image", files, pixel_bytes=pixels)
    survey = MachineSurvey(calibrations=[timed])
    session = with_survey(made(MadeRun(stages=stages, facts={"length": 10})), survey)
    assert f"samples of {size(kept)}," in helping(session, "cache").costs[0]
