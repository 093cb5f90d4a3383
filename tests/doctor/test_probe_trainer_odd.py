"""Loaders of other makes, and batches that no one expects: they are let be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from probing import notes, probed, records
from torch.utils.data import DataLoader
from training_loops import Loop, Stream, loader, pairs


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


class Odd:
    """A batch that will not be looked into."""

    @property
    def nbytes(self) -> int:
        raise LookupError("none of your business")


class OddLoader(DataLoader[Any]):
    """Its iterator is none of torch's."""

    def _get_iterator(self) -> Any:
        return iter([Odd(), Odd()])


def _oddly_collated(_: Any) -> Odd:
    return Odd()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_odd_batches_and_loaders_break_nothing(tmp_path: Path) -> None:
    with probed(tmp_path):
        for _ in OddLoader(pairs(8)):
            pass
        for _ in DataLoader(pairs(8), batch_size=4, collate_fn=_oddly_collated):
            pass
        for _ in DataLoader([torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])], batch_size=None):  # type: ignore[arg-type]
            pass
        Loop().train(loader(8))
    assert "hook-off" not in notes(tmp_path)
    assert [get[9] for get in records(tmp_path, "fetch", "get")] == [None, None, None, 144, 144]


def test_asking_for_a_loaders_length_is_left_to_the_user(tmp_path: Path) -> None:
    class Short(Stream):
        def __len__(self) -> int:
            return 2

    with probed(tmp_path):
        assert len(list(DataLoader(Short(6)))) == 6  # torch would warn, had the length been asked for
