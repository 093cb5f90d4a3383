"""Planted: long texts are tokenised one by one, in each epoch anew; each batch is padded to its own longest.

A batch of 8: some 25 ms of it in the one worker; a step: 6 ms."""

from __future__ import annotations

import torch
from planted import train
from planted_data import sentence, tokeniser
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

EXPECTED = ("tokenisation",)


class Texts(Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.texts = [sentence(number, 2_000 + number % 50) for number in range(200)] * 20
        self.tokeniser = tokeniser()

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(self.tokeniser.encode(self.texts[index]).ids)


def collate(samples: list[torch.Tensor]) -> torch.Tensor:
    return pad_sequence(samples, batch_first=True)


if __name__ == "__main__":
    train(DataLoader(Texts(), batch_size=8, shuffle=True, num_workers=1, collate_fn=collate), seconds=0.006)
