"""Counts its updates of an epoch and its last, smaller group of batches, as timm's train.py does: LENGTH EPOCHS.

Past the epoch's length it divides by the batches that are left over, of which there are
none: the first batch too many trains, the second one raises."""

from __future__ import annotations

import sys
import time

import torch
from quick_optimizer import Descent
from short import Slow
from torch.utils.data import DataLoader

if __name__ == "__main__":
    length, epochs = map(int, sys.argv[1:])
    model = torch.nn.Linear(8, 1)
    optimizer = Descent(model.parameters(), lr=1e-9)
    loader = DataLoader(Slow(length), batch_size=4, num_workers=1)
    for _ in range(epochs):
        accum_steps = 1
        last_accum_steps = len(loader) % accum_steps
        last_batch_idx = len(loader) - 1
        last_batch_idx_to_accum = len(loader) - last_accum_steps
        for batch_idx, batch in enumerate(loader):
            need_update = batch_idx == last_batch_idx or (batch_idx + 1) % accum_steps == 0
            if batch_idx >= last_batch_idx_to_accum:
                accum_steps = last_accum_steps
            loss = model(batch).mean()
            time.sleep(0.004)
            loss.backward()
            if need_update:
                optimizer.step()
                optimizer.zero_grad()
