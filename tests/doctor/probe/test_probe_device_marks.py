"""The device's view of a step, on a simulated stream that lags behind the thread which fills it."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from made_sessions import process, read, write_evidence, write_settings

from headrace.doctor.probe.training.closed_steps import device_records
from headrace.doctor.probe.training.device_marks import DeviceMarks


@dataclass
class Mark:
    done_us: float = 0.0


@dataclass
class Stream:
    """Work is queued at `now_us` and done in order: a device. Marks take no time."""

    now_us: float = 0.0
    done_us: float = 0.0
    may_mark: bool = True
    made: int = 0
    marks: list[Mark] = field(default_factory=list)

    def work(self, us: float) -> None:
        self.done_us = max(self.done_us, self.now_us) + us

    def follow(self) -> None:
        pass

    def record(self, spare: Mark | None) -> Mark | None:
        if not self.may_mark:
            return None
        if spare is None:
            self.made += 1
            spare = Mark()
        assert spare not in [mark for mark in self.marks if mark is spare]  # no mark in use is set again
        spare.done_us = max(self.done_us, self.now_us)
        return spare

    def is_done(self, mark: Mark) -> bool:
        return mark.done_us <= self.now_us

    def elapsed_us(self, earlier: Mark, later: Mark) -> float:
        assert self.is_done(earlier)  # to ask one that is not done would wait
        assert self.is_done(later)  # to ask one that is not done would wait
        return later.done_us - earlier.done_us


def _step(marks: DeviceMarks, stream: Stream, wait_us: float, backward_us: float) -> None:
    """The thread waits for a batch, then queues work in no time."""
    marks.mark("w")
    stream.now_us += wait_us
    marks.mark("r")
    marks.mark("b")
    stream.work(backward_us)
    marks.mark("c")
    marks.mark("o")
    stream.work(10)
    marks.mark("p")


def _parts(marks: list[tuple[str, float]]) -> dict[str, float]:
    """Microseconds up to each mark, from the one before it."""
    return {kind: us - before for (_, before), (kind, us) in itertools.pairwise(marks)}


@pytest.mark.parametrize(("wait_us", "stood_still_us"), [(100, 0), (510, 0), (600, 90), (5000, 4490)])
def test_a_device_with_work_left_does_not_wait_for_the_batch(wait_us: float, stood_still_us: float) -> None:
    stream = Stream()
    marks = DeviceMarks(stream)
    _step(marks, stream, 0, 500)
    marks.close(0)
    _step(marks, stream, wait_us, 500)
    marks.close(1)
    stream.now_us = 1e9
    (first, second) = marks.read()
    assert [first[0], second[0]] == [0, 1]
    assert _parts(second[1])["r"] == stood_still_us
    assert _parts(second[1])["c"] == 500
    assert second[1][0] == ("s", first[1][-1][1])


def test_a_step_is_read_only_once_the_device_has_come_past_it() -> None:
    stream = Stream()
    marks = DeviceMarks(stream)
    _step(marks, stream, 0, 1000)
    marks.close(0)
    assert marks.read() == []
    stream.now_us = 1009
    assert marks.read() == []
    stream.now_us = 1010
    assert [number for number, _ in marks.read()] == [0]
    assert marks.read() == []


def test_a_device_far_behind_gets_no_marks_until_it_has_caught_up() -> None:
    stream = Stream()
    marks = DeviceMarks(stream, most_steps=4)
    read: list[tuple[int, Any]] = []
    for number in range(20):
        _step(marks, stream, 0, 1000)
        marks.close(number)
        read += marks.read()
    made = stream.made
    assert [number for number, _ in read] == []
    stream.now_us = stream.done_us
    read += marks.read()
    assert [number for number, _ in read] == [0, 1, 2, 3]
    for number in range(20, 24):
        _step(marks, stream, 2000, 500)
        stream.now_us = stream.done_us
        marks.close(number)
        read += marks.read()
    assert [number for number, _ in read] == [0, 1, 2, 3, 20, 21, 22, 23]
    assert made < 40
    assert all(kinds_of(marks_) == "swrbcop" for _, marks_ in read)
    times = [us for _, marks_ in read for _, us in marks_]
    assert times == sorted(times)


def kinds_of(marks: list[tuple[str, float]]) -> str:
    return "".join(kind for kind, _ in marks)


def test_marks_are_read_as_they_were_to_a_tenth_however_long_the_run(tmp_path: Path) -> None:
    """Gaps that are no whole number of tenths would add up to an error, and days make the numbers long."""
    draw = random.Random(5)
    times = itertools.accumulate(draw.choice([0.0, 0.04, 0.37, 1234.56, 3_600e6]) for _ in itertools.count())
    told = [(number, [(kind, next(times)) for kind in "swrhibcop"]) for number in range(50)]
    records = device_records(SimpleNamespace(read=lambda: told))  # type: ignore[arg-type]
    steps = [["step", number, number, number + 1, [], None] for number, _ in told]
    write_settings(tmp_path)
    write_evidence(tmp_path, "a", [process(7), *steps, *map(list, records)])
    (trainer,) = read(tmp_path).trainers
    found = [mark for marks in trainer.steps.device for mark in marks or []]
    expected = [mark for _, marks in told for mark in marks]
    assert [kind for kind, _ in found] == [kind for kind, _ in expected]
    assert [us for _, us in found] == pytest.approx([us for _, us in expected], rel=0, abs=0.051)
    assert all(round(us, 1) == us for _, us in found)
