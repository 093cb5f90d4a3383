"""Tracked DataLoaders over tiny datasets, made as the battery asks for them."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from headrace.dropins.resumable_samplers import BucketBatchSampler, ResumableBatchSampler, ResumableSampler
from headrace.dropins.thread_loader.thread_dataloader import ThreadDataLoader
from headrace.plan import Windowed

LENGTH = 40
GLOBAL_BATCH = 12
BUCKETS = [(24, 32)] * 22 + [(32, 24)] * 12 + [(28, 28)] * 6
"""No bucket's last global batch has fewer samples than the battery has ranks."""

KINDS = ("batches", "windows", "samples", "buckets")
WORKERS = {"no workers": (0, False), "workers": (2, False), "persistent workers": (2, True)}
SHORT_CUT = {("buckets", "persistent workers")}
"""With workers, the others are for make test-long: each forks a hundred processes."""

everywhere = pytest.mark.parametrize(
    ("kind", "workers"),
    [
        pytest.param(
            kind, workers, marks=[] if not WORKERS[workers][0] or (kind, workers) in SHORT_CUT else pytest.mark.long
        )
        for kind in KINDS
        for workers in WORKERS
    ],
)

NUM_WORKERS = {1: 0, 2: 1, 8: 3}
"""What the battery calls threads."""


class Numbers(Dataset):
    """Sample n is n. `dies_at` kills the process that asks for it, once there are workers; `fails_at` raises."""

    def __init__(self, length=LENGTH, *, dies_at=None, fails_at=None):
        self.length, self.dies_at, self.fails_at = length, dies_at, fails_at
        self.parent = os.getpid()

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index == self.dies_at and os.getpid() != self.parent:
            os.kill(os.getpid(), signal.SIGKILL)
        if index == self.fails_at:
            raise ZeroDivisionError(f"sample {index}")
        return {"sample": index}


class SeededThreads(ThreadDataLoader):
    """Every pass draws the same base seed, as ranks do whose scripts begin with one torch.manual_seed."""

    def __iter__(self):
        torch.manual_seed(2)
        return super().__iter__()

    def seek(self, epoch, step):
        torch.manual_seed(2)
        super().seek(epoch, step)


def sampler_of(kind, *, batch_size=GLOBAL_BATCH, length=LENGTH, seed=5, **options):
    if kind == "samples":
        return ResumableSampler(length, seed=seed, **options)
    if kind == "buckets":
        return BucketBatchSampler(BUCKETS, batch_size, seed=seed, **options)
    if kind == "windows":
        options["order"] = Windowed(block_samples=3, window_blocks=4, lanes=4)
    return ResumableBatchSampler(length, batch_size, seed=seed, **options)


def loader_of(sampler, *, dataset=None, batch_size=GLOBAL_BATCH, cls=DataLoader, num_workers=0, **options):
    """A DataLoader that draws from `sampler`; `batch_size` is said to it only where the sampler yields samples."""
    how = (
        {"sampler": sampler, "batch_size": batch_size}
        if isinstance(sampler, ResumableSampler)
        else {"batch_sampler": sampler}
    )
    if num_workers:
        options = {"multiprocessing_context": "fork"} | options
    return cls(Numbers() if dataset is None else dataset, num_workers=num_workers, **how, **options)


def factory(kind, workers="no workers", **fixed):
    """`make(**overrides)` for the battery."""

    def make(threads=None, rank=0, world_size=1, batch_size=GLOBAL_BATCH, **overrides):
        num_workers, persistent = WORKERS[workers]
        if threads is not None:
            num_workers = NUM_WORKERS[threads]
        sampler = sampler_of(kind, batch_size=batch_size, rank=rank, world_size=world_size, **(fixed | overrides))
        persistent = persistent and num_workers > 0
        loader = loader_of(sampler, batch_size=batch_size, num_workers=num_workers, persistent_workers=persistent)
        return sampler.track(loader)

    return make


def dealt(parts):
    """The ranks' parts of one global batch of single samples, which are dealt out to the ranks in turn."""
    parts = [part["sample"] for part in parts]
    turns = [part[turn] for turn in range(max(map(len, parts))) for part in parts if turn < len(part)]
    return {"sample": np.array(turns)}


def samples_of(batches):
    return [batch["sample"].tolist() for batch in batches]


def flat(lists):
    return [item for part in lists for item in part]
