"""The order of work on streams: nothing is used too early, reused too early, or waited for without need.

The device is a double (`stream_double`); code, threads and values are real. test_stream_mutations.py shows what the
double finds.
"""

from __future__ import annotations

import pytest
import stream_scenarios
from loader_data import write_folder
from stream_double import simulated_device

import headrace as hr

SEEDS = range(3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return hr.open(write_folder(tmp_path_factory.mktemp("streams") / "photos", 20))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scenario", stream_scenarios.ALONE, ids=lambda scenario: scenario.__name__)
def test_batches_of_any_source_are_in_order(scenario, seed):
    with simulated_device(seed) as device:
        scenario(device)
    assert not device.checker.findings, "\n".join(map(str, device.checker.findings))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scenario", stream_scenarios.WITH_IMAGES)
def test_batches_of_a_loader_are_in_order(scenario, seed, folder):
    with simulated_device(seed) as device:
        stream_scenarios.WITH_IMAGES[scenario](device, folder)
    assert not device.checker.findings, "\n".join(map(str, device.checker.findings))
