"""Padding in batches of sequences, as the probe counts it."""

from __future__ import annotations

from collections import UserDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from probing import probed, records
from torch.utils.data import DataLoader
from training_loops import Loop

from headrace.doctor.probe.look.leaves import EVERY, MOST_TOKENS, counted

PAD = 0
WIDTH = 12


def tokens(*lengths: int, pad: int = PAD) -> torch.Tensor:
    """Rows of so many tokens other than the padding, each one greater than the one before."""
    rows = torch.full((len(lengths), WIDTH), pad)
    for row, length in enumerate(lengths):
        rows[row, :length] = torch.arange(1, length + 1)
    return rows


def mask(*lengths: int) -> torch.Tensor:
    return (tokens(*lengths) != PAD).long()


@pytest.mark.parametrize(
    "batch",
    [
        {"input_ids": tokens(3, 9, 5), "labels": torch.arange(3)},
        {"attention_mask": mask(3, 9, 5), "input_ids": torch.ones(3, WIDTH, dtype=torch.int64)},
        {"input_ids": torch.ones(3, WIDTH, dtype=torch.int64), "attention_mask": mask(3, 9, 5).bool()},
        UserDict({"attention_mask": mask(3, 9, 5)}),
        (tokens(3, 9, 5), torch.arange(3)),
        [{"input_ids": tokens(3, 9, 5).int()}],
        tokens(3, 9, 5).numpy(),
        {"attention_mask": mask(3, 9, 5).flip(1)},
        tokens(3, 9, 5, pad=77),
    ],
    ids=["ids", "mask", "mask-last", "UserDict", "tuple", "nested", "array", "left", "77"],
)
def test_tokens_that_are_no_padding_are_counted(batch: Any) -> None:
    assert counted(batch) == (3, WIDTH, 17, 9)


@pytest.mark.parametrize(
    "batch",
    [
        torch.rand(4, 16),
        torch.ones(16, dtype=torch.int64),
        torch.ones(4, 4, dtype=torch.int64),
        torch.ones(2, 3, 8, 8, dtype=torch.uint8),
        tokens(3, 9, 5).byte(),
        torch.tensor([[0, 1, 0, 0, 1, 0, 1, 0, 0, 0], [1, 0, 0, 1, 0, 0, 0, 0, 0, 0]]),
        torch.zeros(4, 16, dtype=torch.int64),
        torch.ones(4, 0, dtype=torch.int64),
        torch.ones(4, 16, dtype=torch.int64, device="meta"),
        np.zeros((1, MOST_TOKENS + 1), np.uint8),
        {"text": ["a", "b"]},
        object(),
        None,
    ],
)
def test_what_holds_no_sequences_tells_nothing(batch: Any) -> None:
    assert counted(batch) is None


def test_a_few_batches_of_a_run_are_looked_at(tmp_path: Path) -> None:
    sentences = [tokens(1 + number % 5)[0] for number in range(4 * EVERY * 3)]
    with probed(tmp_path):
        for batch in DataLoader(sentences, batch_size=4):  # type: ignore[arg-type]
            Loop().step((torch.ones(4, 8) * batch.sum(), torch.ones(4, 1)))
    found = records(tmp_path, "padding")
    assert [record[1:5] for record in found] == [[0, index, 4, WIDTH] for index in (0, EVERY, 2 * EVERY)]
    assert found[0][5:] == [1 + 2 + 3 + 4, 4]
