"""Exclusive times by stage, by a clock that the test turns."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from headrace.doctor.probe import stages as stages_module
from headrace.doctor.probe.patches import Builtin
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

    def stage_of(name: str) -> int:
        names.append(name)
        return READ

    class Square(Shape):
        pass

    area = timed_by_type(stages, stage_of)(Shape.area)
    stages.open()
    assert [area(Shape(), 2), area(Square(), 3), area(Square(), 4)] == [4, 9, 16]
    assert stages.close()[READ][0] == 3
    assert names == ["Shape", "Square"]


@pytest.fixture(autouse=True)
def _closed(stages: Stages) -> Iterator[None]:
    yield
    stages.close()
