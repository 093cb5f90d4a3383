"""Nothing planted: bound by the device. A batch: 4 ms; a step: 40 ms."""

from __future__ import annotations

import torch
from planted import burn, train
from torch.utils.data import DataLoader, Dataset

EXPECTED = ()


class Samples(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 4_000

    def __getitem__(self, index: int) -> torch.Tensor:
        burn(0.001)
        return torch.full((16,), float(index))


if __name__ == "__main__":
    train(DataLoader(Samples(), batch_size=4, num_workers=2), seconds=0.040)
