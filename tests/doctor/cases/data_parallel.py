"""nn.DataParallel as on a machine with two GPUs: the model is not really spread, but it is what the script asks for."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset


class OnTwoDevices(torch.nn.DataParallel[torch.nn.Linear]):
    """Without a GPU torch leaves `device_ids` empty, and runs the module as it is."""

    @property
    def device_ids(self) -> list[int]:
        return [0, 1]

    @device_ids.setter
    def device_ids(self, found: list[int]) -> None:
        assert found == [], "this machine has GPUs"

    def forward(self, *inputs: Any) -> Any:
        return self.module(*inputs)


if __name__ == "__main__":
    model = OnTwoDevices(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (numbers,) in DataLoader(TensorDataset(torch.ones(40, 4)), batch_size=4):
        model(numbers).sum().backward()
        optimizer.step()
