"""The evidence's records of one step, and of its batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, Union

if TYPE_CHECKING:
    from ..clock import Clock
    from ..evidence_file import Record
    from .device_marks import DeviceMarks, Marks
    from .steps import Step


class Received(NamedTuple):
    """A batch, as docs/doctor/evidence.md has it; times are readings of the clock."""

    pass_: int
    index_: int
    start: int
    end: int
    arrived: int | None
    unpickle: int | None
    pin_start: int | None
    pin: int | None
    bytes: int | None
    shape: int | None
    unpickle_cpu: int | None = None


class Replayed(NamedTuple):
    """A `next()` that gave a copy of a batch that was kept."""

    pass_: int
    start: int
    end: int


Given = Union[Received, Replayed]
"""What a `next()` gave."""


def step_records(clock: Clock, step: Step, cost: int) -> list[Record]:
    """Its batches first, then the step; `cost` is the probe's, in tenths of a microsecond."""
    zero = clock.us(step.start)
    spans = [
        (kind, clock.us(start) - zero, (end - start + 500) // 1000) for kind, start, end in step.spans if end > start
    ]
    records = batch_records(clock, step)
    whole = ("step", step.number, zero, clock.us(step.end or step.start), spans, cost)
    records.append(whole if step.use is None else (*whole, *step.use.us()))
    if step.ready is not None:
        records.append(("ready", step.number, clock.us(step.ready)))
    for start, end, (name, size) in step.collectives:
        records.append(("collective", step.number, clock.us(start), (end - start) // 1000, name, size))
    return records


def batch_records(clock: Clock, step: Step) -> list[Record]:
    """A batch for an evaluation is a `fetch`, since no step waited for it."""
    return [
        batch_record(clock, "fetch" if event.pass_ in step.evaluated else "get", batch) for event, batch in step.gets
    ]


def fetch_records(clock: Clock, batches: Iterable[Given]) -> list[Record]:
    """Batches that another thread received."""
    return [batch_record(clock, "fetch", batch) for batch in batches]


def device_records(marks: DeviceMarks) -> list[Record]:
    """Of the steps that the device has come past."""
    return [_device_record(number, step_marks) for number, step_marks in marks.read()]


def _device_record(number: int, marks: Marks) -> Record:
    """Whole tenths, each since the mark before: the time of a long run's mark has ten digits, its distance few. Tenths
    are rounded before they are subtracted, so that no error adds up."""
    times = [round(us * 10) for _, us in marks]
    gaps = [time - before for before, time in zip([0, *times], times)]
    return ("device", number, "".join(kind for kind, _ in marks), gaps)


def batch_record(clock: Clock, kind: str, batch: Given) -> Record:
    """As a `get`, or another kind of record with the same elements; a copy is a `replayed`, whatever it was for."""
    if isinstance(batch, Replayed):
        return ("replayed", batch.pass_, clock.us(batch.start), (batch.end - batch.start) // 1000)
    return (
        kind,
        batch.pass_,
        batch.index_,
        clock.us(batch.start),
        (batch.end - batch.start) // 1000,
        _us(clock, batch.arrived),
        None if batch.unpickle is None else batch.unpickle // 1000,
        _us(clock, batch.pin_start),
        None if batch.pin is None else batch.pin // 1000,
        batch.bytes,
        batch.shape,
        None if batch.unpickle_cpu is None else batch.unpickle_cpu // 1000,
    )


def _us(clock: Clock, reading: int | None) -> int | None:
    return None if reading is None else clock.us(reading)
