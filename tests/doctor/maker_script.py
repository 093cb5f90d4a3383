"""A program that loads data in every way that the probe must follow, and checks that it is left as it was. Its figures
are small; what it does is read from the evidence that its processes leave."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

KEYS = 12
BATCH = 4


class Numbers(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return KEYS

    def __getitem__(self, key: int) -> torch.Tensor:
        info = get_worker_info()
        assert info is None or type(info.dataset) is type(self), info
        return torch.full((8,), key)


class InBatches(Numbers):
    def __getitems__(self, keys: list[int]) -> list[torch.Tensor]:
        return [self[key] for key in keys]


class Failing(Numbers):
    def __getitem__(self, key: int) -> torch.Tensor:
        if key == 5:
            raise LookupError("no sample 5")
        return super().__getitem__(key)


class Nested(Numbers):
    """Has a loader of its own, as those that cache or resample do."""

    def __getitem__(self, key: int) -> torch.Tensor:
        return next(iter(DataLoader(Numbers(), batch_size=2)))[0]


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Any:
        yield from torch.arange(KEYS)


def collate(samples: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(samples)


def keys(loader: Any) -> list[float]:
    return [float(key) for batch in loader for key in batch.reshape(len(batch), -1)[:, 0]]


def main() -> None:
    everything = list(map(float, range(KEYS)))
    for workers, start in ((0, None), (1, "fork"), (1, "spawn")):
        lasting = {"multiprocessing_context": start, "persistent_workers": workers > 0}
        loader = DataLoader(Numbers(), BATCH, collate_fn=collate, num_workers=workers, **lasting)
        for _ in range(2):
            assert keys(loader) == everything
        del loader
    assert keys(DataLoader(InBatches(), BATCH)) == everything
    assert keys(DataLoader(Stream(), BATCH, num_workers=1)) == everything
    assert len(list(DataLoader(Stream(), batch_size=None))) == KEYS
    assert len(list(DataLoader(Nested(), BATCH))) == KEYS // BATCH
    for workers in (0, 1):
        with pytest.raises(LookupError, match="no sample 5"):
            keys(DataLoader(Failing(), BATCH, num_workers=workers))


if __name__ == "__main__":
    main()
    sys.exit(0)
