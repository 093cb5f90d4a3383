"""The next epoch is prefetched at the end of a pass: it changes no batch and no count, and leaves nothing behind."""

from __future__ import annotations

import functools
import gc
import random
import threading
import time
from itertools import islice

import battery
import pytest
from loader_data import COUNT, load_crops, write_tar
from processes import DEADLINE_S, eventually, in_fork, nothing_left, own_threads, run_python

import headrace as hr
from headrace.loader.assembly import Assembly

STEPS = COUNT // 4
PREFETCH = 3


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A tar: its reader keeps a descriptor open."""
    return write_tar(tmp_path_factory.mktemp("epochs") / "photos.tar")


@pytest.fixture(scope="module")
def photos(place):
    return hr.open(place)


@pytest.fixture(autouse=True)
def nothing_is_left(photos):
    with nothing_left():
        yield


def load(data, **options):
    return load_crops(data, **({"prefetch": PREFETCH} | options))


@pytest.fixture(scope="module")
def epoch_of(photos):
    """Batches of an epoch, each from a fresh loader."""

    @functools.cache
    def batches(epoch):
        loader = load(photos)
        loader.set_epoch(epoch)
        return battery.kept(loader)

    return batches


def prefetched(loader):
    """Number of batches of the next epoch that are ready."""
    found = loader._feed._prefetched
    return 0 if found is None else found[1].stats().ready_batches


def take_epochs(loader, count=2):
    """From the second epoch on, the next one is prefetched."""
    for _ in range(count):
        for batch in loader:
            del batch
    assert eventually(lambda: prefetched(loader) == PREFETCH)


# --- batches and positions ---


@pytest.mark.parametrize("seed", range(8))
def test_every_pass_has_the_batches_of_a_fresh_loader(photos, epoch_of, seed):
    rng = random.Random(seed)
    loader, states = load(photos, prefetch=rng.randint(1, 12)), load(photos)
    received = adopted = 0
    for _ in range(20):
        match rng.randrange(12):
            case 0:
                loader.set_epoch(loader.epoch)
            case 1:
                loader.set_epoch(rng.randrange(5))
            case 2:
                loader.seek(rng.randrange(5), rng.randrange(STEPS))
            case 3:
                loader.load_state_dict(loader.state_dict())
            case 4:
                assert eventually(lambda: loader._feed._prefetched is None or prefetched(loader) > 0)
        ahead = loader._feed._prefetched
        iterator = iter(loader)
        adopted += ahead is not None and iterator._pass is ahead[1]
        epoch, step = loader.epoch, loader.next_step
        count = rng.randrange(STEPS) if rng.random() < 0.2 else STEPS + 1
        got = battery.kept(islice(iterator, count))
        received += len(got)
        battery.assert_equal(got, epoch_of(epoch)[step : step + count], f"epoch {epoch} from step {step}")
        states.seek(*divmod(epoch * STEPS + step + len(got), STEPS))
        assert loader.state_dict() == states.state_dict()
        if rng.random() < 0.5:
            iterator.close()
    assert adopted > 0
    assert loader.counts()["batches"] == received


def test_a_full_queue_at_every_step(photos):
    """Both epochs together: no more than `prefetch`, and no fewer where the next one begins."""
    loader = load(photos)
    list(loader)
    for _ in range(2):
        iterator = iter(loader)
        for _ in iterator:
            at_hand = functools.partial(lambda taking: taking.stats().ready_batches + prefetched(loader), iterator)
            assert eventually(lambda ready=at_hand: ready() == PREFETCH)
            assert loader._feed.memory.held() <= PREFETCH + 2  # this batch, and the one before it
            if iterator.stats().batches >= STEPS - PREFETCH:
                assert iterator._pass.has_ended(DEADLINE_S)
        del iterator


def test_the_first_batches_are_ready_when_a_pass_begins(photos, epoch_of):
    loader = load(photos)
    take_epochs(loader)
    iterator = iter(loader)
    assert iterator.stats().ready_batches == PREFETCH
    battery.assert_equal(battery.kept(iterator), epoch_of(2), "the third epoch")


def test_two_iterators_at_once(photos, epoch_of):
    loader = load(photos)
    take_epochs(loader)
    for first, second in zip(loader, loader, strict=True):
        battery.assert_equal(battery.kept([first]), battery.kept([second]), "two iterators")
    battery.assert_equal(battery.kept(loader), epoch_of(3), "the epoch after")


# --- only where another epoch is likely, and calls nothing of the user's ---


def nothing_is_prefetched(loader, passes=3):
    for _ in range(passes):
        for batch in loader:
            del batch
    return eventually(lambda: own_threads() == [])


@pytest.mark.parametrize("argument", ["map", "batch_map"])
def test_functions_of_the_users_see_their_own_epoch(photos, argument):
    assert nothing_is_prefetched(load(photos, **{argument: lambda value, rng: value}))


def test_tokenizers_do_not_change(photos):
    text = hr.Text(lambda texts: [[len(text)] for text in texts], max_length=4, pad_id=0, source="txt")
    loader, once = (load(photos, fields={"text": text}, view=None) for _ in range(2))
    take_epochs(loader)
    once.set_epoch(2)
    battery.assert_equal(battery.kept(loader), battery.kept(once), "the third epoch")


def test_a_mixture_prefetches_no_epoch(photos):
    assert nothing_is_prefetched(hr.mix({"a": load(photos), "b": load(photos)}))


def test_one_pass_prefetches_no_epoch(photos):
    loader = load(photos)
    assert nothing_is_prefetched(loader, passes=1)


def test_an_epoch_that_is_always_set_back_is_not_prefetched(photos):
    loader = load(photos)
    for _ in range(3):
        loader.set_epoch(0)
        assert nothing_is_prefetched(loader, passes=1)


# --- counts ---


def test_times_count_from_the_begin_of_a_pass(photos):
    loader = load(photos)
    take_epochs(loader)
    time.sleep(0.2)  # an evaluation, which is no part of a pass
    began = time.perf_counter()
    stats = iter(loader).stats()
    elapsed_s = time.perf_counter() - began
    assert 0 <= stats.wall_s <= elapsed_s
    assert 0 <= stats.feed_wait_s <= elapsed_s
    assert 0 <= stats.idle_s <= 2 * elapsed_s


def test_each_pass_counts_its_own_uses_of_the_cache(photos):
    loader = load(photos, cache=f"ram:{30_000_000 + COUNT}B")
    for number in range(4):
        for batch in loader:
            del batch
        assert number == 0 or eventually(lambda: prefetched(loader) == PREFETCH)
        cache = loader.stats().cache
        assert (cache.hits, cache.misses) == ((2 * COUNT, 0) if number else (0, 2 * COUNT))  # images and labels
    assert loader.counts()["cache_hits"] == 3 * loader.counts()["cache_misses"]


def test_a_dropped_epoch_is_not_counted(photos, epoch_of):
    loader = load(photos)
    take_epochs(loader)
    loader.set_epoch(7)
    battery.assert_equal(battery.kept(loader), epoch_of(7), "the epoch that was set")
    assert loader.counts()["batches"] == 3 * STEPS
    assert loader.counts()["samples"] == 3 * COUNT
    assert eventually(lambda: own_threads() == [])  # that pass did not follow a whole one


# --- errors, and the end ---


def test_an_error_waits_for_its_epoch(photos, monkeypatch):
    start = Assembly.start

    def fails(self, plan):
        if plan.epoch == 2:
            raise MemoryError("no room for a batch")
        return start(self, plan)

    monkeypatch.setattr(Assembly, "start", fails)
    loader = load(photos)
    assert [len(list(loader)) for _ in range(2)] == [STEPS, STEPS]
    with pytest.raises(MemoryError, match="no room for a batch"):
        list(loader)
    loader.set_epoch(3)
    assert len(list(loader)) == STEPS


def test_a_thread_that_cannot_be_started_for_the_next_epoch(photos, epoch_of, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    loader = load(photos)
    list(loader)
    iterator = iter(loader)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    battery.assert_equal(battery.kept(iterator), epoch_of(1), "the pass before")
    monkeypatch.undo()
    battery.assert_equal(battery.kept(loader), epoch_of(2), "the next pass")


@pytest.mark.parametrize("way", ["dropped", "in a cycle"])
def test_the_loader_ends_what_it_prefetched(photos, way):
    loader = load(photos)
    take_epochs(loader)
    assert eventually(lambda: {"headrace-feed", "headrace-0", "headrace-1"} <= set(own_threads()))
    if way == "in a cycle":
        loader.itself = loader
    del loader
    gc.collect()
    assert eventually(lambda: own_threads() == [])


def test_a_fork_between_passes(photos, epoch_of):
    loader = load(photos)
    take_epochs(loader)

    def work():
        return b"".join(batch["image"].tobytes() for batch in loader)

    child = in_fork(work)
    battery.assert_equal(battery.kept(loader), epoch_of(2), "in the parent")
    assert child() == b"".join(batch["image"].tobytes() for batch in epoch_of(2))


@pytest.mark.parametrize("ending", ["", "sys.exit(0)", "loader.itself = loader"])
def test_the_interpreter_exits(place, ending):
    script = """
import sys
import headrace as hr

loader = hr.Loader(sys.argv[1], view=hr.Resize((24, 24)), batch_size=4, threads=2, output="numpy")
for _ in range(2):
    for batch in loader:
        pass
"""
    assert run_python(script + ending, place) == (0, "", "")
