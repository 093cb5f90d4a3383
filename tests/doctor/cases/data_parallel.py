"""nn.DataParallel on a machine without a GPU: it trains, and the report should still say what it is."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    model = torch.nn.DataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (numbers,) in DataLoader(TensorDataset(torch.ones(40, 4)), batch_size=4):
        model(numbers).sum().backward()
        optimizer.step()
