"""A Loader that tunes itself: what is given stays, what is tuned changes no bit, and `stats()` says what and why."""

from __future__ import annotations

import random

import battery
import numpy as np
import pytest
from loader_data import COUNT, write_folder
from map_functions import no_pid
from processes import eventually, in_fork

import headrace as hr
from headrace import _core
from headrace.loader.autotuning.tuner import Setting, Tuner
from headrace.system.resources import available_cores

MOST = Setting(4, 9)


class Restless(Tuner):
    """Asks for another setting at every look."""

    def __init__(self, seed):
        super().__init__(Setting(1, 1), MOST)
        self._random = random.Random(seed)
        self.asked = []

    @property
    def setting(self):
        self.asked.append(Setting(self._random.randint(1, MOST.threads), self._random.randint(1, MOST.prefetch)))
        return self.asked[-1]

    @setting.setter
    def setting(self, value):
        pass


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return hr.open(write_folder(tmp_path_factory.mktemp("tuned") / "photos"))


def load(data, **options):
    given = {"view": hr.RandomResizedCrop(24, flip=0.5), "batch_size": 4, "shuffle": True, "output": "numpy"}
    return hr.Loader(data, **(given | options))


def restless(data, seed, **options):
    loader = load(data, threads=MOST.threads, prefetch=MOST.prefetch, **options)
    loader._feed.tuner = Restless(seed)
    return loader


@pytest.mark.parametrize("options", [{}, {"map": no_pid}, {"map": no_pid, "map_workers": 2}], ids=len)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.one_in(3)
def test_settings_that_change_at_every_batch_change_no_bit(photos, options, seed):
    expected = battery.epochs(load(photos, threads=1, prefetch=1, **options))
    loader = restless(photos, seed, **options)
    battery.assert_equal(battery.epochs(loader), expected, "a setting at every batch")
    assert len(set(loader._feed.tuner.asked)) > 10


def test_resume_under_settings_that_change_at_every_batch(photos):
    battery.check_resume_at_every_step(lambda **given: restless(photos, 5, **(given | {"batch_size": 8})))


def test_a_pass_under_such_settings_that_is_broken_off_ends(photos):
    """The fixtures find what is left behind."""
    loader = restless(photos, 3)
    for taken in range(6):
        iterator = iter(loader)
        for _ in range(taken):
            next(iterator)
        del iterator


def test_left_out_both_are_tuned_beginning_with_all_cores(photos, monkeypatch):
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    loader = load(photos)
    assert (loader.threads, loader.prefetch) == (available_cores(), 3)
    list(loader)
    assert set(loader.stats().tuned) == {"threads", "prefetch"}


def test_ranks_of_a_node_share_the_cores(photos, monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "999")
    loader = load(photos)
    assert loader._feed.tuner.most.threads == 1
    monkeypatch.setattr("headrace.loader.autotuning.tuner.default_threads", lambda: 6)
    assert load(photos)._feed.tuner.most.threads == 6


@pytest.mark.parametrize(
    ("options", "tuned", "lines"),
    [
        ({}, {"threads", "prefetch"}, ["  threads 5 (tuned: ", "  prefetch 3 (tuned: as it began)"]),
        ({"threads": 2}, {"prefetch"}, ["  threads 2 (given)", "  prefetch 3 (tuned: as it began)"]),
        ({"prefetch": 2}, {"threads"}, ["  threads 5 (tuned: ", "  prefetch 2 (given)"]),
        ({"threads": 2, "prefetch": 2}, set(), []),
    ],
    ids=["neither given", "threads given", "prefetch given", "both given"],
)
def test_stats_say_what_is_set_and_why(photos, monkeypatch, options, tuned, lines):
    monkeypatch.setattr("headrace.loader.autotuning.tuner.default_threads", lambda: 5)
    loader = load(photos, **options)
    list(loader)
    stats = loader.stats()
    assert set(stats.tuned) == tuned
    assert (stats.threads, stats.prefetch) == (loader.threads, loader.prefetch)
    told = [line for line in str(stats).splitlines() if line.startswith(("  threads", "  prefetch"))]
    assert len(told) == len(lines)
    assert all(line.startswith(begin) for line, begin in zip(told, lines, strict=True))


def test_the_one_thread_of_a_rank_with_one_core_is_not_said_to_be_given(photos, monkeypatch):
    monkeypatch.setattr("headrace.loader.autotuning.tuner.default_threads", lambda: 1)
    loader = load(photos)
    list(loader)
    assert "  threads 1 (tuned: there are no more cores)" in str(loader.stats()).splitlines()
    loader = load(photos, threads=1)
    list(loader)
    assert "  threads 1 (given)" in str(loader.stats()).splitlines()


def test_a_pass_goes_on_where_the_one_before_ended(photos):
    loader = load(photos)
    loader._feed.tuner.setting = Setting(1, 5)
    list(loader)
    assert (loader.stats().threads, loader.stats().prefetch) == (1, 5)
    iterator = iter(loader)
    next(iterator)
    assert (iterator.stats().threads, iterator.stats().prefetch) == (1, 5)
    iterator.close()


class Stepwise(Tuner):
    """A setting that the test sets."""

    def __init__(self, setting):
        super().__init__(setting, Setting(4, 9))


def test_a_change_reaches_a_pass_that_runs(photos):
    loader = load(photos, batch_size=1, threads=4, prefetch=9)
    loader._feed.tuner = Stepwise(Setting(4, 1))
    iterator = iter(loader)
    next(iterator)
    assert eventually(lambda: iterator.stats().ready_batches == 1)
    loader._feed.tuner.setting = Setting(1, 6)
    next(iterator)
    assert eventually(lambda: iterator.stats().ready_batches == 6)
    loader._feed.tuner.setting = Setting(2, 2)
    for _ in range(10):
        next(iterator)
    assert eventually(lambda: iterator.stats().ready_batches == 2)
    assert (iterator.stats().threads, iterator.stats().prefetch) == (2, 2)
    iterator.close()


def test_memory_that_is_kept_follows(photos):
    loader = load(photos, batch_size=1, threads=4, prefetch=9)
    loader._feed.tuner = Stepwise(Setting(2, 9))
    iterator = iter(loader)
    next(iterator)
    assert eventually(lambda: iterator.stats().ready_batches == 9)
    loader._feed.tuner.setting = Setting(2, 1)
    for _ in iterator:
        pass
    pool = loader._feed.memory._of_this_process()
    assert pool.usage()[1] <= 2


def test_a_fork_in_mid_pass_goes_on_tuned(photos):
    loader = load(photos)
    expected = [batch["image"].sum() for batch in loader]
    loader.set_epoch(0)
    iterator = iter(loader)
    next(iterator)

    def rest():
        return bytes([[batch["image"].sum() for batch in iterator] == expected[1:], loader.stats().prefetch == 3])

    assert in_fork(rest)() == b"\1\1"
    iterator.close()


def test_a_consumer_that_only_waits_is_measured(photos):
    """Through the loader itself: windows come about, and the tuner hears of them."""
    heard = []

    class Hears(Tuner):
        def observe(self, seen):
            heard.append(seen)

    data = photos.select(np.resize(np.arange(COUNT), 200_000))
    loader = load(data, batch_size=16)
    loader._feed.tuner = Hears(Setting(1, 2), Setting(4, 8))
    iterator = iter(loader)
    while not heard:
        next(iterator)
    iterator.close()
    (seen,) = heard
    assert seen.steps >= 2
    assert 0 < seen.wait_s <= seen.wall_s
    assert 0 <= seen.feed_wait_s <= seen.wall_s
    assert 0 <= seen.idle_s <= seen.wall_s * 1.01
    assert seen.batch_bytes == 16 * 3 * 24 * 24


def test_what_is_read_of_a_pass_goes_on_from_where_its_feed_has_ended(photos):
    """A window may begin before and end after, with batches that lie ready."""
    iterator = iter(load(photos, threads=2, prefetch=COUNT // 4))
    runner = iterator._pass
    assert eventually(lambda: runner.readings().idle_s > 0)
    before = runner.readings().idle_s
    runner._thread.join()
    after = runner.readings()
    assert after.idle_s >= before
    assert after.idle_s == iterator.stats().idle_s
    iterator.close()


def jobs(engine, photos, count):
    files = photos.files("image")
    paths = _core.Paths(str(files.root).encode(), files.names.blob, files.names.offsets, keep_open=False, inside=False)
    made = []
    for _ in range(count):
        at = photos.locate("image", np.arange(COUNT))
        job = _core.Job(np.arange(COUNT), np.zeros(COUNT, np.uint32), key=0, program=np.zeros((0, 10)))
        job.add_raw(_core.Ranges(paths, at.path_id, at.offset, at.length))
        engine.submit(job)
        made.append(job)
    return made, paths


def test_an_engines_threads_are_started_when_they_are_asked_for(photos):
    engine = _core.Engine(1, most_threads=5)
    assert engine.threads == 1
    assert [engine.set_threads(threads) for threads in (3, 5, 2, 1, 4)] == [3, 5, 2, 1, 4]
    made, paths = jobs(engine, photos, 20)
    for threads in (1, 5, 1, 2):
        engine.set_threads(threads)
    for job in made:
        job.wait()
        assert job.failures() == []
        assert [len(data) for data in job.raw(0)] == [len(photos.read("image", number)) for number in range(COUNT)]
    engine.close()
    paths.close()


def test_threads_that_rest_do_not_idle():
    engine = _core.Engine(4)
    assert eventually(lambda: engine.idle_ns > 0)
    engine.set_threads(1)
    before = engine.counters()["idle"][0]
    assert eventually(lambda: engine.counters()["idle"][0] >= before + 20_000_000)
    engine.close()


@pytest.mark.parametrize("threads", [0, -1, 4])
def test_numbers_of_threads_that_an_engine_cannot_have(threads):
    engine = _core.Engine(2, most_threads=3)
    with pytest.raises(ValueError, match=f"expected from 1 to 3 threads, got {threads}"):
        engine.set_threads(threads)
    assert engine.threads == 2
    engine.close()
