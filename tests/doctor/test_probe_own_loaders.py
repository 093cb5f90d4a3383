"""Headrace's own loaders under the doctor: each `next()` that blocks the training thread is a wait for data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from probing import notes, probed, records
from training_loops import Loop, pairs

import headrace
from headrace.doctor.analyse import diagnose
from headrace.doctor.conclusion import concluded
from headrace.doctor.session.model import Outcome


def threaded(_: Path) -> Any:
    return headrace.ThreadDataLoader(pairs(24), batch_size=4, num_workers=2)


def native(photos: Path) -> Any:
    return headrace.Loader(str(photos), view=headrace.Resize((8, 8)), batch_size=10, threads=2)


def train(batches: Any) -> None:
    loop = Loop()
    for batch in batches:
        inputs = batch["image"].float().mean((2, 3)).repeat(1, 3)[:, :8] if isinstance(batch, dict) else batch[0]
        loop.step((inputs, torch.zeros(len(inputs), 1)))


@pytest.mark.parametrize("make", [threaded, native])
def test_batches_and_passes_are_counted(make: Callable[[Path], Any], tmp_path: Path, photos: Path) -> None:
    loader = make(photos)
    with probed(tmp_path):
        train(loader)
        train(loader)
    (facts,) = records(tmp_path, "loader")
    assert (facts[3]["num_workers"], facts[3]["threads"], facts[3]["length"]) == (0, 2, 6)
    assert facts[3]["dataset"].endswith(f".{type(loader).__name__}")
    assert [one[4] for one in records(tmp_path, "pass")] == sorted(one[4] for one in records(tmp_path, "pass"))
    assert [get[1:3] for get in records(tmp_path, "get")] == [
        [number, index] for number in (0, 1) for index in range(6)
    ]
    assert len(records(tmp_path, "step")) == 12
    assert len(records(tmp_path, "last")) == 2
    assert "hook-off" not in notes(tmp_path)


def test_the_wait_is_the_loops_and_its_making_is_not_guessed(tmp_path: Path) -> None:
    loader = threaded(tmp_path)
    with probed(tmp_path):
        for _ in range(4):
            train(loader)
    outcome = Outcome(["python", "train.py"], 0, "finished", 1)
    session = concluded(tmp_path, outcome=outcome, mode="observe")
    diagnosis = diagnose(session)
    assert diagnosis.wait_share is not None
    assert diagnosis.wait_share > 0
    assert [maker for maker in session.makers if maker.batches.index] == []
