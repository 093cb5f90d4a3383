"""Seeds for what a rank draws by itself: dropout, augmentations in Python, noise."""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy as np
import torch

from headrace.errors import UsageError


class Seeds(NamedTuple):
    torch: int
    numpy: tuple[int, ...]
    python: int


def seeds_of(seed: int, *, rank: int) -> Seeds:
    """One seed a generator, which differ between ranks and between generators; the same for the same arguments.

    By numpy's SeedSequence with the rank as its spawn key: `seed + rank` would give rank 1 of seed 0 what rank 0 of
    seed 1 draws.
    """
    if seed < 0:
        raise UsageError(f"seed: expected an int >= 0, got {seed!r}")
    words = np.random.SeedSequence(seed, spawn_key=(rank,)).generate_state(8, np.uint32).tolist()
    return Seeds(_joined(words[:2]), tuple(words[2:6]), _joined(words[6:]))


def _joined(words: list[int]) -> int:
    """63 bits: torch takes no more in every version."""
    return (words[0] << 32 | words[1]) & (2**63 - 1)


def seed_generators(seed: int, *, rank: int) -> None:
    """Seeds the global generators of torch (of its GPUs, too), numpy and random."""
    seeds = seeds_of(seed, rank=rank)
    torch.manual_seed(seeds.torch)
    np.random.seed(list(seeds.numpy))
    random.seed(seeds.python)
