"""Headrace's own loaders under the doctor: each `next()` that blocks the training thread is a wait for data."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from probing import library_probe, notes, probed, records
from report_pages import said
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler, SubsetRandomSampler
from training_loops import Loop, pairs

import headrace
from headrace.doctor.causes import diagnose
from headrace.doctor.measure.diagnosis import Diagnosis
from headrace.doctor.probe.look.objects import MOST_LEVELS, attributes_of, described_loader
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
    assert [get[1:3] for get in records(tmp_path, "get")] == [[pass_, index] for pass_ in (0, 1) for index in range(6)]
    assert len(records(tmp_path, "step")) == 12
    assert len(records(tmp_path, "last")) == 2
    assert "hook-off" not in notes(tmp_path)


def seen(folder: Path) -> tuple[Session, Diagnosis]:
    session = read_session(folder, outcome=CommandOutcome(["python", "train.py"], 0, "finished", 1), mode="observe")
    return session, diagnose(session)


class Slow(Dataset[Any]):
    """Samples that take long enough to be waited for."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, key: int) -> Any:
        numbers = np.random.default_rng(key).standard_normal(20_000)
        for _ in range(20):
            numbers = np.sort(numbers[::-1])
        return torch.full((8,), float(numbers[0])), torch.zeros(1)


def test_what_the_threads_of_a_thread_loader_do_is_said_to_be_unseen(tmp_path: Path) -> None:
    with probed(tmp_path):
        train(headrace.ThreadDataLoader(Slow(), batch_size=4, num_workers=2))
    session, diagnosis = seen(tmp_path)
    assert not [maker for maker in session.makers if maker.batches.index]
    assert diagnosis.batch_production == []
    assert "not seen" in said(diagnosis)
    assert "training process" not in said(diagnosis)
    assert "hook-off" not in notes(tmp_path)


def test_drop_ins_are_stages(tmp_path: Path, photos: Path) -> None:
    archive = tmp_path / "a.tar"
    with tarfile.open(archive, "w") as tar:
        photo = next(path for path in sorted(photos.rglob("*")) if path.suffix == ".jpg")
        tar.add(photo, "a.jpg")
    with library_probe(tmp_path / "session") as probe:
        from headrace import IndexedTar, decode_image

        tar_file = IndexedTar(archive)
        calls = probe.calls(lambda: decode_image(tar_file.read("a.jpg")))
        assert set(calls) == {"scan:IndexedTar", "read:IndexedTar", "decode:headrace.decode_image"}
        assert "lookup:IndexedTar" in probe.calls(lambda: tar_file.getmember("a.jpg"))
        tar_file.close()
        assert probe.faults() == []


class Slotted:
    __slots__ = ("size", "unset")

    def __init__(self) -> None:
        self.size = 3


class Scale(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("factor", torch.tensor([2.0, 4.0]))
        self.inner = torch.nn.Identity()
        self.eps = 1e-3


class Hostile:
    """Fails a test that runs any of its code."""

    def __init__(self, **held: Any) -> None:
        for name, value in held.items():
            object.__setattr__(self, name, value)

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"asked for {name}")

    def __repr__(self) -> str:
        raise AssertionError("asked for its text")

    def __len__(self) -> int:
        raise AssertionError("asked for its length")

    __eq__ = __hash__ = __bool__ = __iter__ = __len__  # type: ignore[assignment]


class Images(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(3)


def described(wrapper: Any = None, **held: Any) -> dict[str, Any]:
    whole = {"dataset": Images(), "sampler": None, "batch_sampler": None, "drop_last": False, "generator": None}
    found = described_loader(SimpleNamespace(**whole | held), wrapper)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    return found


def test_attributes_come_from_dict_and_slots_and_a_module_shows_what_it_was_given() -> None:
    assert attributes_of(Slotted()) == {"size": 3}
    assert attributes_of(SimpleNamespace(size=4)) == {"size": 4}
    assert set(attributes_of(Scale())) == {"factor", "inner", "eps"}


def test_a_loader_record_describes_what_it_was_given(tmp_path: Path) -> None:
    with probed(tmp_path):
        for _ in DataLoader(Images(), 2, shuffle=True, drop_last=True, collate_fn=torch.stack):
            pass
    ((*_, facts),) = records(tmp_path, "loader")
    drawn = {"replacement": False, "_num_samples": None, "generator": None}
    random = {"class": "torch.utils.data.sampler.RandomSampler", "attributes": drawn}
    assert facts["described"] == {
        "dataset": {"class": f"{__name__}.Images", "bases": ["torch.utils.data.dataset.Dataset"]},
        "sampler": random,
        "batch_sampler": {
            "class": "torch.utils.data.sampler.BatchSampler",
            "attributes": {"sampler": random, "batch_size": 2, "drop_last": True},
        },
        "drop_last": True,
        "generator": False,
    }
    assert "hook-off" not in notes(tmp_path)


def test_samplers_inside_one_another_are_described_to_a_depth() -> None:
    class Sharded(BatchSampler):
        def __init__(self, batch_sampler: Sampler[Any]) -> None:
            self.batch_sampler = batch_sampler

    found = described(batch_sampler=Sharded(BatchSampler(SubsetRandomSampler([3, 1]), 2, False)))
    inner = found["batch_sampler"]["attributes"]["batch_sampler"]["attributes"]["sampler"]
    assert inner == {"class": "torch.utils.data.sampler.SubsetRandomSampler", "attributes": {"generator": None}}

    circle = SimpleNamespace(seed=1)
    circle.sampler = circle
    assert json.dumps(described(sampler=circle)).count("seed") == MOST_LEVELS + 1


def test_none_of_the_users_code_runs() -> None:
    found = described(Hostile(), dataset=Hostile(), sampler=Hostile(seed=7, sampler=Hostile(rank=1)))
    name = f"{__name__}.Hostile"
    assert found["dataset"] == {"class": name, "bases": []}
    assert found["wrapper"] == {"class": name}
    inner = {"class": name, "attributes": {"rank": 1}}
    assert found["sampler"] == {"class": name, "attributes": {"seed": 7, "sampler": inner}}
