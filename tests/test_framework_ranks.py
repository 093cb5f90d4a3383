"""Every framework on two ranks, in processes that all checks share: the ranks' parts are the global batches."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import battery
import framework_ranks
import pytest
from framework_data import maker
from framework_ranks import TAKEN
from loader_data import COUNT, label_of

import headrace

HERE = Path(__file__).parent
GLOBAL_BATCH = 12
STEPS = 4

ACCELERATE = {
    "accelerate_epochs": (0, 2 * STEPS),
    "accelerate_registered": (STEPS + TAKEN, 3 * STEPS),
    "accelerate_stateful": (STEPS + TAKEN, 3 * STEPS),
    "accelerate_skipped": (STEPS + TAKEN, 3 * STEPS),
}
"""The steps, counted over epochs, that each check is to give."""
OTHERS = ("fabric_resumed", "lightning_resumed", "hf_resumed")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def whole(photos):
    """Three epochs of world size 1."""
    return battery.epochs(maker(photos)(batch_size=GLOBAL_BATCH), 3)


@pytest.fixture(scope="module")
def accelerate_ranks(photos, whole, tmp_path_factory):
    checks = [*ACCELERATE, "accelerate_gathered", "accelerate_unaware"]
    return run_ranks(photos, tmp_path_factory.mktemp("out"), checks)


@pytest.fixture(scope="module")
def other_ranks(photos, whole, tmp_path_factory):
    return run_ranks(photos, tmp_path_factory.mktemp("out"), OTHERS)


def run_ranks(photos, out, checks):
    """What each of two ranks was given, by check."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    paths = [str(HERE), str(Path(headrace.__file__).parents[1])]
    ran = subprocess.run(
        [*torchrun, framework_ranks.__file__, str(photos), str(out), *checks],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert ran.returncode == 0, ran.stderr
    return [pickle.loads((out / f"{rank}.pkl").read_bytes()) for rank in range(2)]


def assert_joined(ranks, check, expected):
    joined = [battery.joined(parts) for parts in zip(*(rank[check] for rank in ranks), strict=True)]
    battery.assert_equal(joined, expected, check)


@pytest.mark.parametrize("check", ACCELERATE)
def test_accelerate_gives_the_global_batches(accelerate_ranks, whole, check):
    first, last = ACCELERATE[check]
    assert_joined(accelerate_ranks, check, whole[first:last])


def test_gather_for_metrics_gives_each_sample_once_to_every_rank(accelerate_ranks):
    for rank in accelerate_ranks:
        assert rank["accelerate_gathered"] == [label_of(number) for number in range(COUNT)]


def test_a_loader_made_for_one_rank_is_found_out(accelerate_ranks):
    for rank, expected in zip(accelerate_ranks, (1, 2), strict=True):
        said = rank["accelerate_unaware"]
        assert said.startswith(f"expected step {expected}, got {expected + 1}: steps are dealt out to more ranks")


@pytest.mark.long  # importing these frameworks twice takes ten seconds; one rank of each is tested beside
@pytest.mark.parametrize("check", OTHERS)
def test_other_frameworks_resume_the_global_batches(other_ranks, whole, check):
    assert_joined(other_ranks, check, whole[STEPS + TAKEN : 3 * STEPS])
