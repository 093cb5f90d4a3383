"""The order of work on streams: nothing is used too early, reused too early, or waited for without need.

The device is a double (`stream_double`); code, threads and values are real. test_stream_mutations.py shows what the
double finds.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import stream_scenarios
from loader_data import write_folder
from processes import run_python
from stream_double import NEEDLESS_SYNC, simulated_device

import headrace as hr

SEEDS = range(3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return hr.open(write_folder(tmp_path_factory.mktemp("streams") / "photos", 20))


@pytest.mark.one_in(5)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scenario", stream_scenarios.ALONE, ids=lambda scenario: scenario.__name__)
def test_batches_of_any_source_are_in_order(scenario, seed):
    with simulated_device(seed) as device:
        scenario(device)
    assert not device.checker.findings, "\n".join(map(str, device.checker.findings))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scenario", stream_scenarios.WITH_IMAGES)
@pytest.mark.one_in(12)
def test_batches_of_a_loader_are_in_order(scenario, seed, folder):
    with simulated_device(seed) as device:
        stream_scenarios.WITH_IMAGES[scenario](device, folder)
    assert not device.checker.findings, "\n".join(map(str, device.checker.findings))


ANYWHERE = (
    "plain",
    "pinned_by_the_source",
    "converted",
    "on_own_stream",
    "nested",
    "with_statistics",
    "failing_source",
)


@pytest.mark.one_in(8)
@pytest.mark.parametrize("scenario", [*ANYWHERE, "uint8", "colours", "mixup of floats"])
def test_batches_on_another_accelerator_are_in_order(scenario, folder):
    with simulated_device(kind="xpu") as device:
        if scenario in ANYWHERE:
            getattr(stream_scenarios, scenario)(device)
        else:
            stream_scenarios.WITH_IMAGES[scenario](device, folder)
    assert not device.checker.findings, "\n".join(map(str, device.checker.findings))


NPU = f"""
import sys
sys.path[:0] = sys.argv[1:]
import torch, stream_scenarios
from stream_double import simulated_device
torch.utils.rename_privateuse1_backend("npu")
for name in {ANYWHERE}:
    with simulated_device(kind="npu") as device:
        getattr(stream_scenarios, name)(device)
    assert not device.checker.findings, device.checker.findings
"""


@pytest.mark.long
def test_batches_on_an_accelerator_of_another_package_are_in_order():
    """In a process of its own: torch renames its device for other packages once."""
    code, _, error = run_python(NPU, Path(__file__).parent)
    assert code == 0, error


def test_mps_gets_plain_copies_and_says_so_once(folder):
    """It has no pinned memory, so that the feeding thread waits for each copy. Nothing else is out of order."""
    with simulated_device(kind="mps") as device:
        with pytest.warns(RuntimeWarning, match="no pinned memory, or no streams, for 'mps'"):
            stream_scenarios.plain(device)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            stream_scenarios.nested(device)
            stream_scenarios.failing_source(device)
    assert device.checker.codes == {NEEDLESS_SYNC}


def test_the_index_of_a_device_is_the_current_one_and_must_exist():
    with simulated_device(kind="xpu"):
        assert str(hr.DevicePrefetcher([], "xpu").device) == "xpu:0"
        with pytest.raises(hr.HeadraceError, match="expected one of xpu:0 to xpu:0, got 'xpu:1'"):
            hr.DevicePrefetcher([], "xpu:1")
