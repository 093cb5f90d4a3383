"""`sample_random`: the same draws at any number of threads, and a warning for those who draw elsewhere."""

from __future__ import annotations

import random
import threading
import warnings

import numpy as np
import pytest
import torch
from processes import DEADLINE_S
from torch.utils.data import DataLoader, Dataset, IterableDataset

from headrace.dropins.random_sources import sample_random
from headrace.dropins.thread_loader.thread_dataloader import ThreadDataLoader

COUNT = 12


class Draws(Dataset):
    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return draw()


class Streamed(IterableDataset):
    def __iter__(self):
        return (draw() for _ in range(COUNT))


class Whole(Draws):
    def __getitems__(self, indices):
        return [draw() for _ in indices]


def draw():
    """Asks for the sources anew each time: they go on."""
    return [
        sample_random().numpy.integers(1 << 30),
        sample_random().python.getrandbits(30),
        int(torch.randint(1 << 30, (), generator=sample_random().torch)),
        sample_random().numpy.integers(1 << 30),
    ]


def collate(samples):
    return [*samples, draw()]


def epochs(dataset, workers, seed=0, make=ThreadDataLoader, **options):
    torch.manual_seed(seed)
    loader = make(dataset, 4, num_workers=workers, collate_fn=collate, **options)
    return [list(loader) for _ in range(2)]


@pytest.mark.parametrize("dataset", [Draws(), Streamed(), Whole()], ids=["samples", "stream", "batches"])
@pytest.mark.parametrize("persistent", [False, True])
def test_draws_depend_on_the_seed_and_nothing_else(dataset, persistent):
    expected = epochs(dataset, 1, persistent_workers=persistent)
    for workers in (2, 5):
        assert epochs(dataset, workers, persistent_workers=persistent) == expected
    if not persistent:
        assert epochs(dataset, 0) == expected
    assert epochs(dataset, 2, seed=1, persistent_workers=persistent) != expected
    draws = [value for epoch in expected for batch in epoch for sample in batch for value in sample]
    assert len(set(draws)) == len(draws) == 2 * 3 * 5 * 4


def test_ranks_draw_differently(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    runs = []
    for rank in (0, 1):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        runs.append(epochs(Draws(), 2))
    assert runs[0] != runs[1]


def test_draws_are_as_random_as_their_sources():
    """Uniform over samples, of which each has streams of its own: means of 3,000 draws within 5 standard errors."""

    class Uniform(Draws):
        def __len__(self):
            return 3000

        def __getitem__(self, index):
            source = sample_random()
            return [source.numpy.random(), source.python.random(), float(torch.rand((), generator=source.torch))]

    torch.manual_seed(4)
    draws = np.array(
        [sample for batch in ThreadDataLoader(Uniform(), 50, num_workers=2, collate_fn=list) for sample in batch]
    )
    assert np.abs(draws.mean(0) - 0.5).max() < 5 * np.sqrt(1 / 12 / 3000)
    assert np.abs(np.corrcoef(draws, rowvar=False) - np.eye(3)).max() < 5 / np.sqrt(3000)
    assert np.abs((draws[1:] * draws[:-1]).mean(0) - 0.25).max() < 0.03


def test_elsewhere_it_follows_torchs_generator():
    runs = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        runs.append([draw(), draw()])
    assert runs[0] == runs[1] != runs[2]
    assert runs[0][0] != runs[0][1]


@pytest.mark.long
def test_under_dataloader_it_follows_the_seed_and_differs_from_worker_to_worker():
    first, again = (epochs(Draws(), 2, make=DataLoader) for _ in range(2))
    assert first == again
    draws = [value for epoch in first for batch in epoch for sample in batch for value in sample]
    assert len(set(draws)) == len(draws)


def test_nothing_stays_behind_in_the_calling_thread():
    torch.manual_seed(0)
    list(ThreadDataLoader(Draws(), 4, num_workers=0, collate_fn=collate))
    assert sample_random() is not sample_random()


def test_a_loader_within_a_dataset_leaves_the_sample_its_sources():
    class Outer(Draws):
        def __getitem__(self, index):
            before = draw()
            list(ThreadDataLoader(Draws(), 4, num_workers=0, collate_fn=collate, generator=torch.Generator()))
            return before + draw()

    runs = [epochs(Outer(), workers) for workers in (0, 1, 4)]
    assert runs[0] == runs[1] == runs[2]


# --- the global sources ---


class DrawsFrom(Draws):
    """Draws once the consumer waits, so that its wait sees it."""

    def __init__(self, draw):
        self.draw = draw
        self.consumer_waits = threading.Event()

    def __getitem__(self, index):
        assert self.consumer_waits.wait(DEADLINE_S)
        return self.draw()


def run(draw, workers=2):
    """Two epochs."""
    data = DrawsFrom(draw)
    loader = ThreadDataLoader(data, 4, num_workers=workers)
    before_wait = loader._watch.before_wait

    def waits():
        states = before_wait()
        data.consumer_waits.set()
        return states

    loader._watch.before_wait = waits
    if workers == 0:
        data.consumer_waits.set()
    return [list(loader), list(loader)]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (random.random, "random"),
        (np.random.rand, "numpy.random"),
        (lambda: float(torch.rand(())), "torch's default generator"),
    ],
)
def test_a_dataset_that_draws_from_a_global_source_is_told_once(source, name):
    with pytest.warns(UserWarning, match=rf"^{name} moved while .* Draw from sample_random\(\) instead") as caught:
        run(source)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_numpys_global_source_may_be_of_another_kind():
    usual = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(1))
    try:
        with pytest.warns(UserWarning, match=r"^numpy\.random moved"):
            run(np.random.rand)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run(lambda: sample_random().numpy.random())
    finally:
        np.random.set_bit_generator(usual)


def test_a_dataset_that_draws_from_its_own_is_not_told():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(lambda: sample_random().numpy.random())
        run(random.random, workers=0)


def test_the_training_codes_draws_are_not_taken_for_the_datasets():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in ThreadDataLoader(Draws(), 4, num_workers=2, collate_fn=list):
            random.random(), np.random.rand(), torch.rand(3)
