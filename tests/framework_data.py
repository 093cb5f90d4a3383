"""What the tests of frameworks share: a loader of seven batches an epoch, the last short, and the docs' recipes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import battery
import pytest
from loader_data import write_tar

import headrace as hr

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


class Watched(hr.Loader):
    """Keeps the batches that it gives, whose memory it does not use again for as long."""

    def __init__(self, data: hr.Dataset) -> None:
        super().__init__(data, batch_size=6, view=hr.Resize((8, 8)), threads=1)
        self.given: list[Any] = []

    def __iter__(self) -> Any:
        for batch in super().__iter__():
            self.given.append(batch)
            yield batch


def assert_not_copied(got: list[Any], watched: Watched) -> None:
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
