"""What the tests of frameworks share: loaders of seven batches an epoch, the last short, and the docs' recipes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import battery
import pytest
import torch
from loader_data import COUNT, label_of, write_tar
from sampler_loaders import SeededThreads
from torch.utils.data import Dataset

import headrace as hr
from headrace.dropins.resumable_samplers import ResumableBatchSampler
from headrace.dropins.thread_loader.thread_dataloader import ThreadDataLoader

STEPS = 7

Save = Callable[[dict[str, Any]], object]

DOCS = Path(__file__).parents[1] / "docs" / "drop-ins" / "frameworks.md"


def maker(folder: Path) -> Callable[..., hr.Loader]:
    """Makes loaders over one tar, written to `folder` unless it is there; all alike but for what overrides say."""
    tar = folder / "photos.tar"
    data = hr.open(tar if tar.exists() else write_tar(tar))
    fields = {"image": hr.Image(), "label": hr.Label(), "text": hr.Raw()}

    def make(**overrides: Any) -> hr.Loader:
        given = {"batch_size": 6, "shuffle": True, "seed": 5, "threads": 1}
        return hr.Loader(data, fields, view=hr.RandomResizedCrop(24, flip=0.5), **(given | overrides))

    return make


class Samples(Dataset[dict[str, Any]]):
    """Samples of the same fields as the tar's, for whoever keeps a Dataset."""

    def __init__(self, sample_map: Callable[..., dict[str, Any]] | None = None) -> None:
        self._map = sample_map

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> dict[str, Any]:
        image = torch.full((3, 64, 64), index, dtype=torch.uint8)
        sample = {"image": image, "label": label_of(index), "text": f"number {index}"}
        return sample if self._map is None else self._map(sample, None)


def thread_maker(_: Path) -> Callable[..., ThreadDataLoader]:
    """Makes ThreadDataLoaders whose arguments are named as the Loader's are."""

    def make(*, threads: int = 2, batch_size: int = 6, map: Any = None, **of_sampler: Any) -> ThreadDataLoader:
        sampler = ResumableBatchSampler(COUNT, batch_size, **({"seed": 5} | of_sampler))
        return SeededThreads(Samples(map), batch_sampler=sampler, num_workers=threads)

    return make


MAKERS = {"loader": maker, "threads": thread_maker}

loader_only = pytest.mark.parametrize("make", ["loader"], indirect=True)
threads_only = pytest.mark.parametrize("make", ["threads"], indirect=True)


def state_at(make: Any, epoch: int, step: int) -> dict[str, Any]:
    """The state of a DataLoader that was iterated over as it is, up to there."""
    dataloader = make().as_dataloader()
    dataloader.set_epoch(epoch)
    return battery.state_after(dataloader, step)


class Watched:
    """Keeps the batches that a loader gives, whose memory is not used again for as long."""

    given: list[Any]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.given = []

    def __iter__(self) -> Any:
        for batch in super().__iter__():  # type: ignore[misc]
            self.given.append(batch)
            yield batch


class WatchedLoader(Watched, hr.Loader):
    pass


class WatchedThreads(Watched, ThreadDataLoader):
    pass


def watched(kind: str, folder: Path) -> Any:
    if kind == "threads":
        return WatchedThreads(Samples(), 6, num_workers=2)
    return WatchedLoader(maker(folder)().dataset, batch_size=6, view=hr.Resize((8, 8)), threads=1)


def assert_not_copied(got: list[Any], watched: Any) -> None:
    """The images lie where the loader put them."""
    assert [batch["image"].data_ptr() for batch in got] == [batch["image"].data_ptr() for batch in watched.given]
    assert len(got) == STEPS


def recipe(title: str) -> str:
    """The code that the docs have under this heading."""
    section = DOCS.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(blocks) == 1, f"{title}: expected one recipe, got {len(blocks)}"
    return str(blocks[0])


class RunStoppedError(Exception):
    """A run is cut off in mid-epoch."""


def run_recipe(
    title: str, *, stop_after: int | None = None, save: Callable[[dict[str, Any]], None], **names: Any
) -> Any:
    """What the recipe's `step` is given; after so many batches it saves, given the recipe's names, and breaks off."""
    seen: list[Any] = []

    def step(batch: Any) -> None:
        seen.extend(battery.kept([batch]))
        if len(seen) == stop_after:
            save(names)
            raise RunStoppedError

    names["step"] = step
    if stop_after is None:
        exec(recipe(title), names)
    else:
        with pytest.raises(RunStoppedError):
            exec(recipe(title), names)
    return seen
