"""A small language-model trainer: batches are cut from a memory map by a function, and the next is cut while the last
one trains. No DataLoader anywhere."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

BLOCK, BATCH, WORDS = 64, 16, 256


def get_batch(split):
    data = np.memmap(folder / f"{split}.bin", dtype=np.uint16, mode="r")
    starts = torch.randint(len(data) - BLOCK, (BATCH,))
    for _ in range(busy):
        np.sort(np.random.default_rng(0).standard_normal(20_000))
    x = torch.stack([torch.from_numpy(data[i : i + BLOCK].astype(np.int64)) for i in starts])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + BLOCK].astype(np.int64)) for i in starts])
    return x, y


def learning_rate(step):
    return 1e-3 / (1 + step)


@torch.no_grad()
def evaluated(model):
    model.eval()
    losses = [model_loss(model, *get_batch("val")).item() for _ in range(2)]
    model.train()
    return sum(losses) / len(losses)


def model_loss(model, x, y):
    return torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


def main(steps):
    model = torch.nn.Sequential(torch.nn.Embedding(WORDS, 32), torch.nn.Linear(32, WORDS))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = get_batch("train")
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        if step % 10 == 0:
            evaluated(model)
        for _ in range(2):
            loss = model_loss(model, x, y) / 2
            x, y = get_batch("train")
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        folder, busy = Path(place), int(sys.argv[2])
        for split in ("train", "val"):
            np.random.default_rng(1).integers(0, WORDS, 20_000).astype(np.uint16).tofile(folder / f"{split}.bin")
        main(int(sys.argv[1]))
