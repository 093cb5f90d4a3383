"""Headrace's own loaders under the doctor: each `next()` that blocks the training thread is a wait for data."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from library_probe import library_probe
from probing import notes, probed, records
from report_pages import said
from torch.utils.data import Dataset
from training_loops import Loop, pairs

import headrace
from headrace.doctor.causes import diagnose
from headrace.doctor.measure.diagnosis import Diagnosis
from headrace.doctor.session import read_session
from headrace.doctor.session.model import CommandOutcome, Session


def threaded(_: Path) -> Any:
    return headrace.ThreadDataLoader(pairs(24), batch_size=4, num_workers=2)


def native(photos: Path) -> Any:
    return headrace.Loader(str(photos), view=headrace.Resize((8, 8)), batch_size=10, threads=2)


def train(batches: Any) -> None:
    loop = Loop()
    for batch in batches:
        inputs = batch["image"].float().mean((2, 3)).repeat(1, 3)[:, :8] if isinstance(batch, dict) else batch[0]
        loop.step((inputs, torch.zeros(len(inputs), 1)))


@pytest.mark.one_in(2)
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


def seen(folder: Path) -> tuple[Session, Diagnosis]:
    session = read_session(folder, outcome=CommandOutcome(["python", "train.py"], 0, "finished", 1), mode="observe")
    return session, diagnose(session)


class Slow(Dataset[Any]):
    """Samples that take long enough to be waited for."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, key: int) -> Any:
        numbers = np.random.default_rng(key).standard_normal(20_000)
        for _ in range(5):
            numbers = np.sort(numbers[::-1])
        return torch.full((8,), float(numbers[0])), torch.zeros(1)


def test_the_threads_of_a_thread_loader_are_makers(tmp_path: Path) -> None:
    """Each batch is told, with what all threads did for it; the loop waits for them and makes nothing itself."""
    with probed(tmp_path):
        for _ in range(2):
            train(headrace.ThreadDataLoader(Slow(), batch_size=4, num_workers=2))
    session, diagnosis = seen(tmp_path)
    (maker,) = (maker for maker in session.makers if maker.batches.index)
    batches = maker.batches
    assert sorted(zip(batches.epoch, batches.index, strict=True)) == [(e, i) for e in (0, 1) for i in range(4)]
    assert batches.samples == [4] * 8
    for row, worked in enumerate(batches.worked):
        assert worked == sum(wall for _, _, wall, _ in batches.stages[row])
        assert {maker.stages[one[0]] for one in batches.stages[row]} >= {"getitem:rest", "collate:collate"}
    (making,) = {making.loader: making for making in diagnosis.batch_production[:1]}.values()
    assert (making.threads, making.workers) == (True, 2)
    assert making.stages[0].category == "getitem"
    parts = {part.name for split in diagnosis.waits for part in split.parts}
    assert "made here" not in parts
    assert "unknown" not in parts
    assert "not seen" not in said(diagnosis)
    assert "training process" not in said(diagnosis)
    assert "headrace.ThreadDataLoader's 2 threads" in said(diagnosis)
    assert "hook-off" not in notes(tmp_path)


def test_a_loader_says_itself_which_stage_limits(tmp_path: Path, photos: Path) -> None:
    loader = native(photos)
    with probed(tmp_path):
        for _ in range(3):
            train(loader)
    feeds = records(tmp_path, "feed")
    assert {feed[1] for feed in feeds} == {0, 1, 2}
    ends = [[feed for feed in feeds if feed[1] == number][-1][3] for number in range(3)]
    assert [end["batches"] for end in ends] == [len(loader)] * 3
    assert all(end["stages"]["decode"][0] >= 1 and end["threads"] == 2 for end in ends)
    _, diagnosis = seen(tmp_path)
    (making,) = diagnosis.batch_production
    assert (making.threads, making.workers) == (True, 2)
    assert {stage.label for stage in making.stages} == {"headrace.Loader"}
    assert "not seen" not in said(diagnosis)
    assert "headrace.Loader's 2 threads" in said(diagnosis)
    assert "hook-off" not in notes(tmp_path)


def test_drop_ins_are_stages(tmp_path: Path, photos: Path) -> None:
    archive = tmp_path / "a.tar"
    with tarfile.open(archive, "w") as tar:
        photo = next(path for path in sorted(photos.rglob("*")) if path.suffix == ".jpg")
        tar.add(photo, "a.jpg")
    with library_probe(tmp_path / "session") as probe:
        from headrace import IndexedTar, decode_image

        tar_file = IndexedTar(archive)
        assert set(probe.calls(lambda: decode_image(tar_file.read("a.jpg")))) == {
            "scan:IndexedTar",
            "read:IndexedTar",
            "decode:headrace.decode_image",
        }
        assert "lookup:IndexedTar" in probe.calls(lambda: tar_file.getmember("a.jpg"))
        tar_file.close()
        assert probe.faults() == []
