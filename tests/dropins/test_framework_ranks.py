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
import rank_launcher
from framework_data import MAKERS
from framework_ranks import TAKEN
from loader_data import COUNT, label_of

import headrace

HERE = Path(__file__).parents[1]
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
UNABLE = {"threads:accelerate_stateful"}
"""Only a Loader knows its state at a step that it is not at."""


def named(checks):
    """For each kind of loader, as framework_ranks takes them."""
    return [name for kind in MAKERS for check in checks if (name := f"{kind}:{check}") not in UNABLE]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def whole(photos):
    """Three epochs of world size 1, by kind of loader."""
    return {kind: battery.epochs(make(photos)(batch_size=GLOBAL_BATCH), 3) for kind, make in MAKERS.items()}


@pytest.fixture(scope="module")
def accelerate_ranks(photos, whole, tmp_path_factory):
    checks = [*ACCELERATE, "accelerate_gathered", "accelerate_unaware"]
    return run_ranks(photos, tmp_path_factory.mktemp("out"), named(checks))


@pytest.fixture(scope="module")
def other_ranks(photos, whole, tmp_path_factory):
    return run_ranks(photos, tmp_path_factory.mktemp("out"), named(OTHERS))


def run_ranks(photos, out, checks):
    """What each of two ranks was given, by check."""
    paths = [str(HERE), str(Path(headrace.__file__).parents[1])]
    ran = subprocess.run(
        [sys.executable, rank_launcher.__file__, framework_ranks.__file__, str(photos), str(out), *checks],
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


def expected_of(whole, name, first, last):
    return whole[name.split(":")[0]][first:last]


@pytest.mark.parametrize("name", named(ACCELERATE))
@pytest.mark.one_in(9)
def test_accelerate_gives_the_global_batches(accelerate_ranks, whole, name):
    assert_joined(accelerate_ranks, name, expected_of(whole, name, *ACCELERATE[name.split(":")[1]]))


@pytest.mark.parametrize("kind", MAKERS)
def test_gather_for_metrics_gives_each_sample_once_to_every_rank(accelerate_ranks, kind):
    for rank in accelerate_ranks:
        assert rank[f"{kind}:accelerate_gathered"] == [label_of(number) for number in range(COUNT)]


@pytest.mark.parametrize("kind", MAKERS)
def test_a_loader_made_for_one_rank_is_found_out(accelerate_ranks, kind):
    for rank, expected in zip(accelerate_ranks, (1, 2), strict=True):
        said = rank[f"{kind}:accelerate_unaware"]
        assert said.startswith(f"expected step {expected}, got {expected + 1}: steps are dealt out to more ranks")


@pytest.mark.long  # importing these frameworks twice takes ten seconds; one rank of each is tested beside
@pytest.mark.parametrize("name", named(OTHERS))
def test_other_frameworks_resume_the_global_batches(other_ranks, whole, name):
    assert_joined(other_ranks, name, expected_of(whole, name, STEPS + TAKEN, 3 * STEPS))
