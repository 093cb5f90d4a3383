"""Loaders of other makes, and batches that no one expects: they are let be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from probing import notes, probed, records
from torch.utils.data import DataLoader
from training_loops import Loop, loader, pairs


@pytest.mark.one_in(2)
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata's own, with this torch
@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_of_torchdata_are_seen_like_torchs_own(tmp_path: Path, workers: int) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    with probed(tmp_path):
        Loop().train(loader(8))
        Loop().train(StatefulDataLoader(pairs(24), batch_size=4, num_workers=workers))
    assert [described[1] for described in records(tmp_path, "loader")] == [0, 1]
    gets = [get for get in records(tmp_path, "get") if get[1] == 1]
    assert [get[2] for get in gets] == list(range(6))
    assert all((get[5] is None) == (workers == 0) for get in gets)
    assert len(records(tmp_path, "step")) == 8


class Endless:
    """A batch sampler that begins anew for ever."""

    def __init__(self, batches: Any) -> None:
        self.sampler = batches

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from self.sampler


class KeepingLoader(DataLoader[Any]):
    """One iterator for all passes, as Ultralytics' loader keeps it: made when the first pass begins, or at once."""

    def __init__(self, *arguments: Any, at_once: bool, **options: Any) -> None:
        super().__init__(*arguments, **options)
        object.__setattr__(self, "batch_sampler", Endless(self.batch_sampler))
        self.iterator: Any = super().__iter__() if at_once else None

    def __len__(self) -> int:
        return len(self.batch_sampler.sampler)  # type: ignore[union-attr]

    def __iter__(self) -> Any:
        if self.iterator is None:
            self.iterator = self._get_iterator()
        for _ in range(len(self)):
            yield next(self.iterator)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.one_in(4)
def test_a_loader_that_keeps_its_iterator_is_seen(tmp_path: Path, workers: int, at_once: bool) -> None:
    with probed(tmp_path):
        kept = KeepingLoader(pairs(24), batch_size=4, num_workers=workers, at_once=at_once)
        for _ in range(2):
            Loop().train(kept)
        kept.iterator = None  # its workers end
    assert [one[1:3] for one in records(tmp_path, "pass")] == [[0, 0]]
    assert [get[1:3] for get in records(tmp_path, "get")] == [[0, index] for index in range(12)]
    made = {batch[2] for batch in records(tmp_path, "batch")}
    assert made >= set(range(12))
    assert "hook-off" not in notes(tmp_path)
