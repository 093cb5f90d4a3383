"""Exclusive times by stage, by a clock that the test turns, and what a batch and a step used of the cores."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from probing import LibraryProbe, probed, records
from training_loops import Loop, loader

from headrace.doctor.probe import settings
from headrace.doctor.probe import stages as stages_module
from headrace.doctor.probe.patches import Builtin
from headrace.doctor.probe.probe import Probe
from headrace.doctor.probe.settings import core_use
from headrace.doctor.probe.stages import Stages, timed, timed_by_type

READ, DECODE, OTHER_DECODE, REST = range(4)


class Clock:
    """Wall time and the CPU time of whichever thread asks."""

    def __init__(self) -> None:
        self.wall = 0
        self.cpu = 0

    def pass_(self, wall: int, cpu: int = 0) -> None:
        self.wall += wall
        self.cpu += cpu


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    time = SimpleNamespace(monotonic_ns=lambda: clock.wall, thread_time_ns=lambda: clock.cpu)
    monkeypatch.setattr(stages_module, "time", time)
    return clock


@pytest.fixture
def stages() -> Stages:
    stages = Stages(pytest.fail)
    stages.categories.update({READ: "read", DECODE: "decode", OTHER_DECODE: "decode", REST: "getitem"})
    return stages


def run(stages: Stages, stage: int, inside: Callable[[], None]) -> None:
    timed(stages, stage)(inside)()


def test_a_stage_is_charged_with_what_inner_ones_do_not_take(stages: Stages, clock: Clock) -> None:
    def decode() -> None:
        clock.pass_(10, 9)
        run(stages, READ, lambda: clock.pass_(100, 1))
        run(stages, READ, lambda: clock.pass_(200, 2))
        clock.pass_(5, 4)

    stages.open()
    run(stages, DECODE, decode)
    assert stages.close() == {READ: [2, 300, 3], DECODE: [1, 15, 13]}


def test_a_stage_within_its_own_category_is_a_part_of_it(stages: Stages, clock: Clock) -> None:
    def decode() -> None:
        clock.pass_(1)
        run(stages, OTHER_DECODE, lambda: clock.pass_(10))

    stages.open()
    run(stages, DECODE, decode)
    run(stages, OTHER_DECODE, lambda: clock.pass_(100))
    assert stages.close() == {DECODE: [1, 11, 0], OTHER_DECODE: [1, 100, 0]}


def test_a_stage_that_raises_ends(stages: Stages, clock: Clock) -> None:
    def fail() -> None:
        clock.pass_(7)
        raise LookupError

    stages.open()
    with pytest.raises(LookupError):
        run(stages, READ, fail)
    run(stages, READ, lambda: clock.pass_(1))
    assert stages.close() == {READ: [2, 8, 0]}


def in_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_a_thread_counts_only_between_its_own_open_and_close(stages: Stages, clock: Clock) -> None:
    run(stages, DECODE, lambda: clock.pass_(1000))
    stages.open()
    run(stages, READ, lambda: clock.pass_(10))
    in_thread(lambda: run(stages, DECODE, lambda: clock.pass_(100)))
    assert stages.close() == {READ: [1, 10, 0]}
    assert stages.close() == {}


class Shape:
    def area(self, side: int) -> int:
        """Of a square."""
        return side * side


def test_a_timed_function_is_still_that_function(stages: Stages) -> None:
    make = timed(stages, READ)
    wrapped = make(Shape.area)
    assert (wrapped.__name__, wrapped.__qualname__, wrapped.__doc__) == ("area", "Shape.area", "Of a square.")
    assert wrapped(Shape(), side=3) == 9


def test_a_builtin_keeps_its_manners(stages: Stages) -> None:
    """It takes no self where a class has it for an attribute, and is pickled by its name."""
    import pickle

    absolute = timed(stages, READ)(abs)
    holder = type("Holder", (), {"absolute": absolute})
    assert isinstance(absolute, Builtin)
    assert holder().absolute(-3) == 3
    assert pickle.loads(pickle.dumps(absolute)) is abs
    assert repr(absolute) == repr(abs)
    method = timed(stages, READ)([1, 2, 1].count)
    assert type("Holder", (), {"count": method})().count(1) == 2


def test_methods_are_told_by_the_class_of_their_object(stages: Stages, clock: Clock) -> None:
    names: list[str] = []

    def stage_of(category: str, name: str) -> int:
        names.append(name)
        return READ

    class Square(Shape):
        pass

    area = timed_by_type(SimpleNamespace(stages=stages, stage=stage_of), "read")(Shape.area)  # type: ignore[arg-type]
    stages.open()
    assert [area(Shape(), 2), area(Square(), 3), area(Square(), 4)] == [4, 9, 16]
    assert stages.close()[READ][0] == 3
    assert names == ["Shape", "Square", "Square"]


@pytest.fixture(autouse=True)
def _closed(stages: Stages) -> Iterator[None]:
    yield
    stages.close()


LONG_NS = 50_000_000


@pytest.fixture
def schedstat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for the kernel's file."""
    path = tmp_path / "schedstat"
    monkeypatch.setattr(settings, "_SCHEDSTAT", str(path))
    return path


@pytest.fixture
def probe(tmp_path: Path) -> Iterator[Probe]:
    probe = LibraryProbe(tmp_path / "session").probe
    yield probe
    probe.detach()


def burn(ns: int) -> None:
    until = time.thread_time_ns() + ns
    while time.thread_time_ns() < until:
        pass


def test_waiting_for_a_core_is_told(schedstat: Path) -> None:
    schedstat.write_text("1000 2000 3\n")
    before = core_use(LONG_NS)
    schedstat.write_text("9000 7000 4\n")
    assert core_use(LONG_NS).us_since(before)[1] == 5


@pytest.mark.parametrize("text", ["0 0 0\n", "", "1000 2000\n"])
def test_a_kernel_may_not_count_it(text: str, schedstat: Path) -> None:
    schedstat.write_text(text)
    assert core_use(LONG_NS).delay is None


def test_all_threads_of_the_process_count() -> None:
    before = core_use(0)
    thread = threading.Thread(target=burn, args=[5_000_000])
    thread.start()
    thread.join()
    assert core_use(0).us_since(before)[0] >= 5_000


def batches(probe: Probe) -> list[Any]:
    lines = [json.loads(line) for line in Path(probe.evidence.path).read_text().splitlines()]
    return [line for line in lines if line[0] == "batch"]


def test_a_batch_tells_what_it_used(probe: Probe, schedstat: Path) -> None:
    schedstat.write_text("1 2000000 3\n")
    for index in range(2):  # the first tells how long batches are
        batch = probe.batches.begin(0, index)
        batch.start -= LONG_NS
        burn(3_000_000)
        schedstat.write_text(f"1 {6_000_000 + index * 1_000_000} 3\n")
        probe.batches.end(batch)
        probe.batches.write(batch, sent=0, serialise=0)
    first, second = batches(probe)
    assert first[9] >= 3_000
    assert first[10] is None
    assert second[10] == 1_000


def test_a_step_tells_what_it_used(tmp_path: Path) -> None:
    """But for the first, of which nobody saw the beginning."""
    with probed(tmp_path, observe=False, steps=10_000):
        Loop().train(loader(24))
    first, *others = records(tmp_path, "step")
    assert len(first) == 6
    assert all(step[6] >= 0 for step in others)
    assert sum(step[6] for step in others) > 0
