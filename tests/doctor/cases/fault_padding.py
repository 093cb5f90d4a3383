"""Planted: every sentence is padded to 512 tokens, and most have less than 100; the device computes on all of them.

A batch of 8 is made in less than 1 ms; a step: 5 µs a token, 20 ms, of which 17 are spent on padding."""

from __future__ import annotations

import random
from typing import Any

import torch
from planted import train
from torch.utils.data import DataLoader, Dataset

EXPECTED = ("padding",)
LONGEST = 512
SECONDS_PER_TOKEN = 5e-6

Sample = dict[str, torch.Tensor]


class Sentences(Dataset[Sample]):
    def __len__(self) -> int:
        return 8_000

    def __getitem__(self, index: int) -> Sample:
        length = min(int(random.Random(index).lognormvariate(4, 0.5)), LONGEST)
        input_ids, attention_mask = torch.zeros(2, LONGEST, dtype=torch.int64)
        input_ids[:length] = torch.arange(1, length + 1)
        attention_mask[:length] = 1
        return {"input_ids": input_ids, "attention_mask": attention_mask}


def seconds(batch: Any) -> float:
    return float(batch["input_ids"].numel() * SECONDS_PER_TOKEN)


if __name__ == "__main__":
    train(DataLoader(Sentences(), batch_size=8, shuffle=True, num_workers=1), seconds=seconds)
