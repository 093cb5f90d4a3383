"""A pass's bytes ahead of it: right, within memory, each fetched once, those that are cached not at all."""

from __future__ import annotations

import asyncio
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from archives import add_file
from processes import eventually

import headrace as hr
from headrace import _core
from headrace.data import Dataset, ObjectPath, native_paths
from headrace.errors import NotFoundError, ReadError
from headrace.fetch import FetchAhead, FetchCancelled, ahead
from headrace.fetch.fetch_stats import WaitClock
from headrace.plan import UniformPlan, WindowShape
from headrace.stores import FailedRequestError, FailureKind, LinkModel
from headrace.stores import request_planning as requests
from headrace.stores.request_errors import Outage

SAMPLES = 60


@dataclass(eq=False)
class FileStore:
    """Files of this machine as objects of a store, and the ranges that were asked for."""

    address = "made://store"
    retry_for_s = None
    answered = frozenset({"read"})
    rereads_credentials = True
    outage: Outage = field(default_factory=Outage)
    asked: list[tuple[str, int, int]] = field(default_factory=list)
    fails: dict[tuple[str, int], list[FailedRequestError]] = field(default_factory=dict)
    hangs: bool = False
    renewed: int = 0
    before: Callable[[], object] | None = None
    """What the store waits for before it answers."""

    async def read_async(
        self, key: str, start: int, end: int, _pin: object, begun: Callable[[], None]
    ) -> tuple[memoryview, None]:
        self.asked.append((key, start, end))
        failures = self.fails.get((Path(key).name, start)) or self.fails.get((Path(key).name, -1))
        if failures:
            raise failures.pop()
        if self.before is not None:
            await asyncio.to_thread(self.before)
        await asyncio.sleep(1000 if self.hangs else 0)
        begun()
        return memoryview(Path(key).read_bytes()[start:end]), None

    def end_outage(self) -> None:
        ended, self.outage = self.outage, Outage()
        ended.over.set_result(None)

    @property
    def connections(self) -> int:
        return self.renewed

    def renew(self, before: int) -> None:
        self.renewed += before == self.renewed


@dataclass(frozen=True, eq=False)
class Object(ObjectPath):
    """A file of this machine in place of an object."""

    def __str__(self) -> str:
        return f"made://store{self.key}"

    def open(self) -> Any:
        return self

    def size(self) -> int:
        return Path(self.key).stat().st_size


@dataclass
class RemoteDataset:
    """A dataset of this machine whose files count as a store's."""

    local: Dataset
    store: FileStore

    @property
    def base_ids(self) -> Any:
        return self.local.base_ids

    def locate(self, column: str, index: Any) -> Any:
        return self.local.locate(column, index)

    def files(self, column: str) -> Any:
        files = self.local.files(column)

        class Files:
            is_remote = True
            path = staticmethod(files.path)

            @staticmethod
            def object(number: int) -> Object:
                store: Any = self.store
                return Object(store, files.path(number).decode())

        return Files


@pytest.fixture
def remote(tmp_path: Path) -> RemoteDataset:
    content = {f"{at:03}": np.random.default_rng(at).bytes(100 + 37 * at) for at in range(SAMPLES)}
    for part in range(3):
        names = list(content)[part::3]
        with tarfile.open(tmp_path / f"{part}.tar", "w") as tar:
            for name in names:
                add_file(tar, f"{name}.bin", content[name])
    return RemoteDataset(hr.open(str(tmp_path / "*.tar")), FileStore())


def plan_of(**options: Any) -> UniformPlan:
    return UniformPlan(**{"length": SAMPLES, "batch_size": 7, "seed": 5, **options})


class Pass:
    """A pass of the bytes alone, as the runner goes through it."""

    def __init__(self, remote: RemoteDataset, plan: UniformPlan, *, limit: int = 20_000, **options: Any) -> None:
        self.remote, self.plan = remote, plan
        dataset: Any = remote
        self.ahead = FetchAhead(dataset, ["bin"], plan, epoch=0, first_step=0, limit_bytes=limit, **options)

    def read(self, samples: Any, *, again: bool = False) -> list[bytes]:
        """Return the samples' bytes as the core reads them, from what is held alone."""
        held = self.ahead.held("bin", samples, all_of_them=again)
        at, local = self.remote.locate("bin", samples), self.remote.local
        nowhere = _core.Paths(b"/nowhere", *_names(local), keep_open=True, inside=False)
        engine = _core.Engine(1, retry_waits_s=[])
        try:
            job = _core.Job(samples, np.zeros(len(samples), np.uint32), key=0, program=np.zeros((0, 10)))
            job.add_raw(at.native(nowhere, held))
            engine.submit(job)
            job.wait()
            assert job.failures() == []
            return job.raw(0)
        finally:
            engine.close()

    def steps(self, epoch: int = 0) -> Iterator[tuple[Any, list[bytes]]]:
        for step in range(self.plan.steps):
            self.ahead.begin(step)
            samples = self.plan.batch(epoch, step).samples
            yield samples, self.read(samples)
            self.ahead.end(step)


def _names(dataset: Dataset) -> tuple[Any, Any]:
    names = dataset.files("bin").names
    assert native_paths(dataset.files("bin"))
    return names.blob, names.offsets  # type: ignore[attr-defined]


@pytest.fixture
def passes() -> Iterator[list[Pass]]:
    made: list[Pass] = []
    yield made
    for each in made:
        each.ahead.close()


def test_every_step_has_its_bytes_and_none_stay(remote: RemoteDataset, passes: list[Pass]) -> None:
    one = Pass(remote, plan_of())
    passes.append(one)
    expected = [remote.local.read("bin", index) for index in range(SAMPLES)]
    seen: list[int] = []
    for samples, data in one.steps():
        assert data == [expected[at] for at in samples.tolist()]
        seen += samples.tolist()
    assert sorted(seen) == list(range(SAMPLES))
    stats = one.ahead.stats()
    assert stats.held_bytes == 0
    assert stats.counts.requests == len(remote.store.asked)
    assert stats.wanted_bytes == sum(map(len, expected)) + 512 * SAMPLES


@pytest.mark.parametrize("gap_bytes", [0, 1 << 30], ids=["no gap read", "all gaps read"])
def test_memory_stays_within_its_limit_whatever_lies_between_samples(
    remote: RemoteDataset, passes: list[Pass], monkeypatch: pytest.MonkeyPatch, gap_bytes: int
) -> None:
    monkeypatch.setattr(LinkModel, "gap_bytes", gap_bytes)
    limit = 12_000  # a step is up to 6 kB of samples, from three tars of some 30 kB
    one = Pass(remote, plan_of(batch_size=2), limit=limit)
    passes.append(one)
    held, ahead = [], []
    for step in range(one.plan.steps):
        one.ahead.begin(step)
        held.append(one.ahead.stats().held_bytes)
        ahead.append(one.ahead.is_planned(step + 1))
        one.ahead.end(step)
    assert 0 < max(held) <= limit
    assert one.ahead.stats().held_bytes == 0
    assert sum(ahead) > one.plan.steps // 2


def test_a_step_above_the_limit_has_its_own_samples_and_no_more(
    remote: RemoteDataset, passes: list[Pass], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LinkModel, "gap_bytes", 1 << 30)
    one = Pass(remote, plan_of(batch_size=2), limit=1)
    passes.append(one)
    expected = [remote.local.read("bin", index) for index in range(SAMPLES)]
    for samples, data in one.steps():
        assert data == [expected[at] for at in samples.tolist()]
        assert one.ahead.stats().held_bytes == sum(512 + len(each) for each in data)


def test_neighbours_are_read_together(remote: RemoteDataset, passes: list[Pass]) -> None:
    one = Pass(remote, plan_of(shuffle=False), limit=1 << 30)
    passes.append(one)
    list(one.steps())
    assert len(remote.store.asked) == 3  # an archive at a time


def test_a_sample_that_comes_again_is_held_until_its_last_use(remote: RemoteDataset, passes: list[Pass]) -> None:
    one = Pass(remote, plan_of(remainder="wrap", batch_size=45), limit=1 << 30)
    passes.append(one)
    found = [samples.tolist() for samples, _ in one.steps()]
    assert len(set(found[0]) & set(found[1])) == 30
    assert one.ahead.stats().held_bytes == 0


def test_waits_for_bytes_count_and_those_that_the_consumer_notices_among_them() -> None:
    now_s = 0.0
    clock = WaitClock(lambda: now_s)
    with clock.consumer_waits():
        now_s += 1  # a batch is decoded
    with clock.batch_waits():
        now_s += 2  # there are batches that are ready
        with clock.consumer_waits():
            now_s += 4
            with clock.batch_waits():  # another thread's, at the same time
                now_s += 8
            now_s += 16
        assert (clock.wait_s, clock.stall_s) == (30, 28)
        now_s += 32
    now_s += 64
    assert (clock.wait_s, clock.stall_s) == (62, 28)


def test_a_stall_is_what_a_store_takes_of_the_wait_for_a_batch(remote: RemoteDataset, passes: list[Pass]) -> None:
    """The store answers nothing until the consumer waits; one that waits for decoding waits for no store."""
    answer = threading.Event()
    remote.store.before = answer.wait
    one = Pass(remote, plan_of())
    passes.append(one)
    one.ahead.begin(0)
    samples = one.plan.batch(0, 0).samples
    feed = threading.Thread(target=one.ahead.held, args=("bin", samples))
    feed.start()
    assert eventually(lambda: one.ahead.waits.wait_s > 0)
    with one.ahead.waits.consumer_waits():
        answer.set()
        feed.join(20)
    stats = one.ahead.stats()
    assert 0 < stats.stall_s <= stats.wait_s
    with one.ahead.waits.consumer_waits():
        one.ahead.held("bin", samples)
    after = one.ahead.stats()
    assert (after.wait_s, after.stall_s) == (stats.wait_s, stats.stall_s)


def test_what_is_cached_is_not_fetched_unless_it_is_asked_for_again(remote: RemoteDataset, passes: list[Pass]) -> None:
    one = Pass(remote, plan_of(), cached=lambda _, ids: ids % 2 == 0)
    passes.append(one)
    one.ahead.begin(0)
    samples = one.plan.batch(0, 0).samples
    held = one.ahead.held("bin", samples)
    assert held is not None
    assert ((held[2] == -1) == (samples % 2 == 0)).all()
    even = samples[samples % 2 == 0]
    assert one.read(even, again=True) == [remote.local.read("bin", int(at)) for at in even]
    one.ahead.end(0)


def test_a_full_cache_is_looked_up_a_few_steps_ahead(
    remote: RemoteDataset, passes: list[Pass], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the first step of a large dataset would wait until all of the epoch is looked up."""
    monkeypatch.setattr(ahead, "_MOST_PLACES", 4 * 7)
    looked_up: list[int] = []

    def all_cached(_: str, ids: Any) -> Any:
        looked_up.extend(ids.tolist())
        return np.ones(len(ids), bool)

    one = Pass(remote, plan_of(), cached=all_cached)
    passes.append(one)
    for step in range(one.plan.steps):
        one.ahead.begin(step)
        assert 7 * (step + 1) <= len(looked_up) + 3 <= 7 * (step + 4) + 3
        assert one.ahead.is_there(step)
        one.ahead.end(step)
    assert sorted(looked_up) == list(range(SAMPLES))
    assert remote.store.asked == []


def test_samples_that_no_step_has_are_fetched_when_asked_for(remote: RemoteDataset, passes: list[Pass]) -> None:
    one = Pass(remote, plan_of(), limit=1)
    passes.append(one)
    one.ahead.begin(0)
    later = one.plan.batch(0, one.plan.steps - 1).samples
    assert one.read(later) == [remote.local.read("bin", int(at)) for at in later]


def test_columns_of_this_machine_are_left_to_it(remote: RemoteDataset, passes: list[Pass]) -> None:
    one = Pass(remote, plan_of())
    passes.append(one)
    assert one.ahead.held("other", np.arange(3)) is None


def test_a_closed_pass_lets_go_of_who_waits(remote: RemoteDataset) -> None:
    remote.store.hangs = True
    one = Pass(remote, plan_of())
    one.ahead.begin(0)
    assert not one.ahead.is_there(0)
    assert not one.ahead.is_there(7)
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            one.ahead.held("bin", one.plan.batch(0, 0).samples)
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    one.ahead.close()
    thread.join(20)
    assert [type(error) for error in caught] == [FetchCancelled]


def test_an_object_that_is_gone_is_an_error_that_names_it(remote: RemoteDataset, passes: list[Pass]) -> None:
    remote.store.fails = {("1.tar", -1): [FailedRequestError(FailureKind.MISSING, "the store answers 404")] * 99}
    one = Pass(remote, plan_of())
    passes.append(one)
    one.ahead.begin(0)
    with pytest.raises(NotFoundError, match=r"made://store.*/1\.tar, bytes \d+ to \d+: could not be read: .* 404"):
        one.ahead.held("bin", one.plan.batch(0, 0).samples)


def test_expired_credentials_are_read_again(remote: RemoteDataset, passes: list[Pass]) -> None:
    expired = FailedRequestError(FailureKind.CREDENTIALS, "the store answers 403 (ExpiredToken)")
    remote.store.fails = {("1.tar", -1): [expired]}
    one = Pass(remote, plan_of(shuffle=False))
    passes.append(one)
    list(one.steps())
    assert remote.store.renewed == 1
    remote.store.fails = {("1.tar", -1): [expired] * 99}
    other = Pass(remote, plan_of(shuffle=False))
    passes.append(other)
    with pytest.raises(ReadError, match="ExpiredToken"):
        list(other.steps())
    assert remote.store.renewed == 4  # before each attempt but the first


def test_a_pass_over_windows_begins_with_the_samples_of_its_first_step(
    remote: RemoteDataset, passes: list[Pass], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "_LARGEST_GAP_BYTES", 0)
    window = WindowShape(block=10, blocks=6)
    one = Pass(remote, plan_of(window=window, batch_size=5), limit=1_000_000)
    passes.append(one)
    seen = [samples.tolist() for samples, _ in one.steps()]
    at = remote.local.locate("bin", np.array(seen[0]))
    first = {(at.path_id[row], at.offset[row] - 512, at.offset[row] + at.length[row]) for row in range(5)}
    names = [remote.local.files("bin").path(number).decode() for number in range(3)]
    asked = remote.store.asked[: len(first)]
    assert {(names.index(name), start, end) for name, start, end in asked} == first
    assert sorted(at for step in seen for at in step) == list(range(SAMPLES))
