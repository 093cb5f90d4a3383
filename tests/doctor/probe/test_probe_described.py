"""What a loader is described by, and Headrace's own readers as stages."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from probing import library_probe, notes, probed, records
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler, SubsetRandomSampler

from headrace.doctor.probe.look.objects import MOST_LEVELS, attributes_of, described_loader


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
    random = {
        "class": "torch.utils.data.sampler.RandomSampler",
        "attributes": {"replacement": False, "_num_samples": None, "generator": None},
    }
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
