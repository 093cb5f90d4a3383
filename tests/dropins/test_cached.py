"""`cached`: the same samples with it and without, random where they were random, made once, shared by processes."""

from __future__ import annotations

import os
import random
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from cached_data import LENGTH, Augmented, Pair, Pictures, crop_and_flip, seed_worker
from killed_forks import count_calls, is_killed_at_call
from processes import in_fork, run_python
from torch.utils.data import DataLoader, Subset

import headrace as hr
from headrace.dropins.cached_dataset import PROBES
from headrace.errors import UsageError

CACHE = "ram:16MB"


def passes(dataset, *, workers=0, epochs=2, **options):
    """Each epoch's samples, by the same seeds whatever lies below."""
    generator = torch.Generator().manual_seed(7)
    torch.manual_seed(7)
    seed_worker(0)
    loader = DataLoader(
        dataset,
        batch_size=4,
        shuffle=True,
        num_workers=workers,
        generator=generator,
        worker_init_fn=seed_worker,
        collate_fn=list,
        **options,
    )
    return [[sample for batch in loader for sample in batch] for _ in range(epochs)]


def assert_same(one, other):
    assert len(one) == len(other)
    for samples, others in zip(one, other, strict=True):
        assert len(samples) == len(others) == LENGTH
        for sample, another in zip(samples, others, strict=True):
            assert sample.keys() == another.keys()
            assert all(torch.equal(torch.as_tensor(sample[key]), torch.as_tensor(another[key])) for key in sample)


def count(log: Path) -> int:
    return log.stat().st_size


@pytest.fixture
def log(tmp_path):
    (tmp_path / "log").touch()
    return tmp_path / "log"


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["ram", "disk"])
@pytest.mark.one_in(2)
def test_the_same_samples_with_and_without(tmp_path, log, kind, workers):
    cache = CACHE if kind == "ram" else f"disk:{tmp_path / 'kept'}:16MB"
    dataset = hr.cached(Pictures(log), cache=cache, augment=crop_and_flip, name="pictures")
    assert_same(passes(dataset, workers=workers), passes(Augmented(), workers=workers))
    assert count(log) == LENGTH + 2 * PROBES, "each is made once, beside those that are looked at when it is opened"
    stats = dataset.stats()
    assert (stats.hits, stats.misses, stats.admitted) == (LENGTH, LENGTH, LENGTH)
    assert 0 < stats.used_bytes <= stats.limit_bytes


def test_what_is_random_stays_random():
    first, second = passes(hr.cached(Pictures(), cache=CACHE, augment=crop_and_flip))
    by_noise = {float(sample["noise"]) for sample in first + second}
    assert len(by_noise) == 2 * LENGTH


@pytest.mark.parametrize(
    "method",
    [
        "spawn",
        pytest.param(
            "forkserver",
            marks=[pytest.mark.long, pytest.mark.leaks(reason="Python's fork server lives as long as the process")],
        ),
    ],
)
@pytest.mark.long
def test_a_worker_that_is_started_anew_shares_it(log, method):
    """Half of it is made here, the rest there."""
    dataset = hr.cached(Pictures(log), cache=CACHE)
    plain = Pictures()
    for index in range(0, LENGTH, 2):
        assert dataset[index].image.tobytes() == plain[index].image.tobytes()
    loader = DataLoader(dataset, batch_size=None, num_workers=1, multiprocessing_context=method)
    expected = [plain[index].image.tobytes() for index in range(LENGTH)]
    assert [sample.image.tobytes() for sample in loader] == expected
    assert count(log) == LENGTH + 2 * PROBES
    assert (dataset.stats().hits, dataset.stats().misses) == (LENGTH // 2, LENGTH)
    assert [dataset[index].label for index in range(LENGTH)] == [index % 2 for index in range(LENGTH)]
    assert dataset.stats().misses == LENGTH


def test_a_sample_is_the_readers_own():
    dataset = hr.cached(Arrays(), cache=CACHE)
    first = dataset[3]
    first["a"][:] = 0
    first["t"].zero_()
    again = dataset[3]
    assert again["a"].flags.writeable
    assert again["a"].flags.owndata
    assert again["a"].tolist() == [3, 4]
    assert again["t"].tolist() == [3.0]


class Arrays:
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return {"a": np.array([index, index + 1]), "t": torch.tensor([float(index)])}


def test_it_is_a_dataset():
    dataset = hr.cached(Pictures(), cache=CACHE)
    assert len(dataset) == LENGTH
    assert dataset.classes == ["cat", "dog"]
    assert type(dataset[0]) is Pair
    assert dataset[-1].label == dataset[np.int64(LENGTH - 1)].label
    assert [sample.label for sample in Subset(dataset, [4, 5])] == [0, 1]
    assert [sample.label for sample in dataset] == [index % 2 for index in range(LENGTH)]
    with pytest.raises(IndexError, match=f"sample {LENGTH} of {LENGTH}"):
        dataset[LENGTH]
    with pytest.raises(AttributeError):
        dataset.nothing  # noqa: B018  # asked for its error
    assert repr(dataset).endswith(f"{dataset.stats()}")


def test_a_limit_of_a_part_of_the_data(log):
    whole = hr.cached(Pictures(), cache=CACHE)
    list(whole)
    limit = whole.stats().used_bytes * 2 // 3
    dataset = hr.cached(Pictures(log), cache=f"ram:{limit}B", augment=crop_and_flip)
    assert_same(passes(dataset, epochs=3), passes(Augmented(), epochs=3))
    stats = dataset.stats()
    assert 0 < stats.admitted < LENGTH
    assert stats.hits == 2 * stats.admitted
    assert stats.stopped == "full"


# --- on a disk ---


LATER = f"""
import headrace as hr
dataset = hr.cached([f"sample {{i}}" for i in range({LENGTH})], cache=CACHE, name=NAME)
assert list(dataset) == dataset.dataset
print(dataset.stats().hits)
"""
"""Without torch, which takes long to import."""


def hits_later(cache: str, name: str | None) -> int:
    code, out, _ = run_python(f"CACHE, NAME = {cache!r}, {name!r}\n{LATER}")
    assert code == 0
    return int(out)


def test_a_later_run_finds_it(tmp_path):
    cache = f"disk:{tmp_path}:16MB"
    assert [hits_later(cache, "a") for _ in range(2)] == [0, LENGTH]
    assert hits_later(cache, "b") == 0


def test_data_that_changed_is_noticed(tmp_path):
    cache = f"disk:{tmp_path}:16MB"
    list(hr.cached(Pictures(), cache=cache, name="a"))
    with pytest.warns(UserWarning, match="is made anew"):
        dataset = hr.cached(Pictures(shade=9), cache=cache, name="a")
    assert all((np.asarray(sample.image)[0] == 9).all() for sample in dataset)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = hr.cached(Pictures(shade=9), cache=cache, name="a")
    list(again)
    assert again.stats().hits == LENGTH


def test_a_bit_that_flipped_on_the_disk_is_made_anew(tmp_path):
    cache = f"disk:{tmp_path}:16MB"
    expected = [np.asarray(sample.image).tolist() for sample in hr.cached(Pictures(), cache=cache, name="a")]
    (file,) = tmp_path.iterdir()
    data = bytearray(file.read_bytes())
    first = np.asarray(Pictures()[11].image).tobytes()
    data[data.index(first) + 5] ^= 1
    file.write_bytes(data)
    dataset = hr.cached(Pictures(), cache=cache, name="a")
    assert [np.asarray(sample.image).tolist() for sample in dataset] == expected
    assert (dataset.stats().damaged, dataset.stats().misses) == (1, 1)


def test_killed_while_it_keeps(tmp_path):
    """Whatever was kept by then is right."""
    expected = [sample.image.tobytes() for sample in map(Pictures().__getitem__, range(LENGTH))]

    def keep(folder: Path) -> list[bytes]:
        return [sample.image.tobytes() for sample in hr.cached(Pictures(), cache=f"disk:{folder}:16MB", name="a")]

    calls = count_calls(lambda: keep(tmp_path / "counted"))
    rng = random.Random(0)
    for number in range(4):
        folder = tmp_path / f"{number}"
        is_killed_at_call(lambda folder=folder: keep(folder), rng.randrange(calls // 4, calls))
        assert keep(folder) == expected


def test_threads_share_it_too():
    dataset = hr.cached(Pictures(), cache=CACHE)
    loader = hr.ThreadDataLoader(dataset, batch_size=4, num_workers=2, collate_fn=list)
    for _ in range(2):
        assert [sample.label for batch in loader for sample in batch] == [index % 2 for index in range(LENGTH)]
    assert (dataset.stats().hits, dataset.stats().misses) == (LENGTH, LENGTH)


def test_another_name_is_another_cache(tmp_path):
    cache = f"disk:{tmp_path}:16MB"
    list(hr.cached(Pictures(), cache=cache, name="a"))
    other = hr.cached(Pictures(shade=1), cache=cache, name="b")
    list(other)
    assert other.stats().hits == 0
    assert len(list(tmp_path.iterdir())) == 2


def test_two_datasets_in_memory_are_two_caches():
    one, other = hr.cached(Pictures(), cache=CACHE), hr.cached(Pictures(), cache=CACHE)
    list(one)
    list(other)
    assert other.stats().hits == 0


def test_the_same_name_in_memory_is_one_cache():
    one, other = (hr.cached(Pictures(), cache=CACHE, name="shared") for _ in range(2))
    list(one)
    list(other)
    assert other.stats().hits == LENGTH


@pytest.mark.long
def test_ranks_that_torchrun_started_share_one(monkeypatch):
    """The same caches in the same order, in another process."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", f"test-{os.getpid()}")
    monkeypatch.setattr("headrace.dropins.cached_dataset._numbers", iter(range(9)))
    mine = hr.cached([f"sample {i}" for i in range(LENGTH)], cache=CACHE)
    list(mine)
    assert hits_later(CACHE, None) == LENGTH
    monkeypatch.delenv("TORCHELASTIC_RUN_ID")
    assert hits_later(CACHE, None) == 0


# --- what would be frozen ---


@pytest.mark.parametrize(
    ("draw", "source"),
    [
        (random.random, "random"),
        (lambda: np.random.rand(), "numpy.random"),
        (lambda: torch.rand(1), "torch's default generator"),
    ],
)
def test_drawing_from_a_global_source_is_refused(draw, source):
    def load(index):
        draw()
        return index

    with pytest.raises(UsageError, match=f"sample 0: expected a sample that is the same each time, .* {source}: rand"):
        hr.cached(Pictures(), cache=CACHE, load=load)


def test_a_sample_that_draws_later_is_refused_in_a_worker_too():
    dataset = hr.cached(Pictures(), cache=CACHE, load=draws_at_seven)

    def in_worker() -> bytes:
        with pytest.raises(UsageError, match=r"sample 7: .* draws from random: random steps would be cached"):
            dataset[7]
        return b"refused"

    assert in_fork(in_worker)() == b"refused"


def draws_at_seven(index):
    return random.random() if index == 7 else index


def test_a_generator_of_its_own_is_seen_too():
    rng = np.random.default_rng(0)
    with pytest.raises(
        UsageError,
        match=r"got another one when it was made again: .* Give load= what is done before the first random step",
    ):
        hr.cached(Pictures(), cache=CACHE, load=lambda index: rng.random())


def test_other_threads_may_draw_meanwhile():
    """ThreadDataLoader's load side by side: nobody can tell there who has drawn."""
    dataset = hr.cached(Pictures(), cache=CACHE, load=draws_at_seven)
    got = []
    thread = threading.Thread(target=lambda: got.append(dataset[7]))
    thread.start()
    thread.join()
    assert isinstance(got[0], float)


# --- arguments ---


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cache": "8GB"}, 'expected "ram:SIZE" or "disk:FOLDER:SIZE"'),
        ({"cache": "disk:/nowhere:1GB"}, "name: expected a name for a cache on a disk"),
        ({"cache": CACHE, "load": 3}, "load: expected a function, got 3"),
        ({"cache": CACHE, "augment": "flip"}, "augment: expected a function, got 'flip'"),
    ],
)
def test_arguments(options, words):
    with pytest.raises(UsageError, match=words):
        hr.cached(Pictures(), **options)


@pytest.mark.parametrize(("dataset", "words"), [(iter([]), "got a list_iterator"), ([], "got an empty one")])
def test_what_is_no_map_style_dataset(dataset, words):
    with pytest.raises(UsageError, match=words):
        hr.cached(dataset, cache=CACHE)


def test_a_list_is_a_dataset():
    assert list(hr.cached([3, 4, "x"], cache=CACHE)) == [3, 4, "x"]
