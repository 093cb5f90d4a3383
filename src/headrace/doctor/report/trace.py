"""Perfetto trace of a session, in the Trace Event Format."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from typing import Any

import msgspec

from headrace.doctor.measure import OTHER, WAIT, Diagnosis, TimeSpan, device_spans, named, segments
from headrace.doctor.report.escaping import safe
from headrace.doctor.report.run_text import command_line
from headrace.doctor.session.model import Session
from headrace.doctor.session.producers import BatchProducer
from headrace.doctor.session.trainers import SPANS, MeasuredWindow, OptimizerSteps, ReceivedBatches, Trainer

Event = dict[str, Any]

WINDOWS, LOOP, DEVICE, MAKING = 1, 2, 3, 4
"""Tracks of a process, in display order."""
_FOREIGN = 1_000_000_000
"""First id of track groups without a free pid: machines, and processes on other hosts with the same pid."""


@dataclass(frozen=True)
class Slice:
    """Slice of a track that starts at `start` and lasts `duration` µs."""

    name: str
    start: float
    duration: float
    args: dict[str, Any] = field(default_factory=dict)

    @property
    def end(self) -> float:
        return self.start + self.duration


def by_start(one: Slice) -> tuple[float, float]:
    """Return a sort key that puts outer slices before inner ones."""
    return one.start, -one.duration


def nested(slices: Iterable[Slice]) -> Iterator[Slice]:
    """Nest slices sorted by `by_start`, since trace viewers drop partial overlaps.

    A slice that outlasts its enclosing slice ends with it. This cuts off the clock's last microsecond, or a call from
    another thread.
    """
    open_: list[Slice] = []
    for one in slices:
        while open_ and open_[-1].end <= one.start:
            open_.pop()
        if open_ and one.end > open_[-1].end:
            one = replace(one, duration=open_[-1].end - one.start)
        if one.duration > 0:
            open_.append(one)
            yield one


def trace(session: Session, diagnosis: Diagnosis) -> Iterator[str]:
    """Yield the document piece by piece, so that a long run is never held in memory as text."""
    about = {
        "headrace": safe(session.headrace),
        "created": safe(session.created),
        "command": safe(command_line(session)),
        "verdict": safe(diagnosis.verdict.text),
        "cost_of_measuring": asdict(diagnosis.cost),
    }
    encode = msgspec.json.Encoder().encode
    yield '{"displayTimeUnit":"ms","otherData":' + encode(about).decode() + ',"traceEvents":[\n'
    separator = ""
    for event in trace_events(session):
        yield separator + encode(event).decode()
        separator = ",\n"
    yield "\n]}\n"


def trace_events(session: Session) -> Iterator[Event]:
    """Yield the tracks of each process, the flow arrows between tracks, and the machines' counters."""
    groups, places = _groups(session), count()
    for trainer in session.trainers:
        pid = groups[trainer.host, trainer.pid]
        yield from _named("process", pid, 0, f"rank {trainer.rank} on {trainer.host}", next(places))
        if trainer.windows:
            yield from _track(pid, WINDOWS, "windows", "window", _window_slices(trainer.windows))
        yield from _track(pid, LOOP, "training loop", "loop", _loop_slices(trainer))
        if any(trainer.steps.device):
            yield from _track(pid, DEVICE, "GPU, current stream", "device", _device_slices(trainer.steps))
    for maker in session.makers:
        pid, place = groups[maker.host, maker.pid], next(places)
        if maker.worker is not None:
            name = f"worker {maker.worker} of process {maker.trainer} on {maker.host}"
            yield from _named("process", pid, 0, name, place)
        yield from _track(pid, MAKING, "batches", "making", _batch_slices(maker))
    yield from _flows(session, groups)
    for machine in session.machines:
        pid = groups[machine.host, None]
        yield from _named("process", pid, 0, f"machine {machine.host}", next(places))
        for name, values in machine.columns.items():
            for time, value in zip(machine.time, values, strict=True):
                if value is not None:
                    yield _counter(pid, name, time, value)


def _groups(session: Session) -> dict[tuple[str, int | None], int]:
    """Return the ids of track groups: the pid if unique across hosts. A machine has no pid."""
    groups: dict[tuple[str, int | None], int] = {}
    foreign = count(_FOREIGN)
    owners: list[tuple[str, int | None]] = [(trainer.host, trainer.pid) for trainer in session.trainers]
    owners += [(maker.host, maker.pid) for maker in session.makers]
    owners += [(machine.host, None) for machine in session.machines]
    for host, pid in owners:
        if (host, pid) not in groups:
            groups[host, pid] = next(foreign) if pid is None or pid in groups.values() else pid
    return groups


def _named(kind: str, pid: int, tid: int, name: str, place: int) -> Iterator[Event]:
    """Yield events with the name and sort index of a `process` (a group of tracks) or a `thread`."""
    event = {"ph": "M", "pid": pid, "tid": tid}
    yield event | {"name": f"{kind}_name", "args": {"name": safe(name)}}
    yield event | {"name": f"{kind}_sort_index", "args": {"sort_index": place}}


def _track(pid: int, tid: int, name: str, category: str, slices: Iterable[Slice]) -> Iterator[Event]:
    """Yield a track with its slices, sorted by start."""
    yield from _named("thread", pid, tid, name, tid)
    for one in nested(slices):
        args = {safe(key): safe(value) if isinstance(value, str) else value for key, value in one.args.items()}
        event = {"ph": "X", "name": safe(one.name), "cat": category, "pid": pid, "tid": tid}
        yield event | {"ts": one.start, "dur": one.duration, "args": args}


def _counter(pid: int, name: str, time: float, value: float) -> Event:
    return {"ph": "C", "name": safe(name), "pid": pid, "tid": 0, "ts": time, "args": {"value": value}}


def _window_slices(windows: Sequence[MeasuredWindow]) -> Iterator[Slice]:
    """Yield windows with their steps and the number of settling steps."""
    for one in windows:
        args = {"first_step": one.first, "steps": one.steps, "settling_steps": one.settling} if one.steps else {}
        yield Slice(one.name, one.start, one.end - one.start, args)


def _loop_slices(trainer: Trainer) -> Iterator[Slice]:
    """Yield steps and the operations in them in order, then drained batches after the steps.

    Forward is the time from the arrival of a batch, or the end of its copy, to its backward.
    """
    gets, replays, drained = trainer.gets, trainer.replays, trainer.drained
    starts = (
        Slice(f"iter(loader {one.loader})", one.start, one.ready - one.start, {"workers": len(one.workers)})
        for one in trainer.passes
    )
    copies = (
        Slice("copy of a cached batch", start, max(duration, 1), {"pass": number})
        for number, start, duration in zip(replays.pass_, replays.start, replays.duration, strict=True)
    )
    rest = (
        Slice("drained batch", start, max(drained.duration[row], 1), _batch_of(drained, row))
        for row, start in enumerate(drained.start)
    )
    waits = (
        Slice("data wait", start, max(gets.duration[row], 1), _batch_of(gets, row) | _cost_of(trainer, row))
        for row, start in enumerate(gets.start)
    )
    return heapq.merge(starts, waits, copies, _step_slices(trainer), rest, key=by_start)


def _batch_of(gets: ReceivedBatches, row: int) -> dict[str, Any]:
    return {"batch": gets.index[row], "pass": gets.pass_[row]}


def _cost_of(trainer: Trainer, row: int) -> dict[str, Any]:
    gets = trainer.gets
    shape = gets.shape[row]
    costs = {"unpickle_us": gets.unpickle[row], "pin_us": gets.pin[row], "bytes": gets.bytes[row]}
    return costs | {"shape": None if shape is None else trainer.shapes[shape]}


def _step_slices(trainer: Trainer) -> Iterator[Slice]:
    """Yield steps, each followed by its parts, without waits and without what no part explains."""
    steps = trainer.steps
    received = sorted(
        TimeSpan(WAIT, start, start + duration)
        for rows in (trainer.gets, trainer.replays)
        for start, duration in zip(rows.start, rows.duration, strict=True)
    )
    at = 0
    for row, number in enumerate(steps.number):
        start, end = steps.start[row], steps.end[row]
        yield Slice(f"step {number}", start, end - start, _window_of(number, trainer) | {"probe_us": steps.probe[row]})
        first = at
        while at < len(received) and received[at].end <= end:
            at += 1
        spans = [TimeSpan(SPANS.get(kind, (kind,))[0], begun, begun + us) for kind, begun, us in steps.spans[row]]
        for name, begun, until in named(list(segments(start, end, [*spans, *received[first:at]]))):
            if name not in (WAIT, OTHER):
                yield Slice(name, begun, until - begun)


def _window_of(number: int, trainer: Trainer) -> dict[str, Any]:
    """Return the window of a step, such as `replay, settling`; empty outside all windows, as in a warm-up."""
    for one in trainer.windows:
        if one.first <= number < one.first + one.steps:
            return {"window": f"{one.name}, settling" if number < one.first + one.settling else one.name}
    return {}


def _device_slices(steps: OptimizerSteps) -> Iterator[Slice]:
    """Yield the GPU's work. Its clock is aligned so that no step begins on the GPU before the CPU's.

    Among all such alignments, the earliest is chosen. Marks without a counterpart are skipped.
    """
    marked = [(start, marks) for start, marks in zip(steps.start, steps.device, strict=True) if marks]
    begun = [start - marks[0][1] for start, marks in marked if marks[0][0] == "s"]
    if not begun:
        return
    ahead = max(begun)
    for _, marks in marked:
        slices = [
            Slice("waits for a batch" if name == WAIT else name, start + ahead, end - start)
            for name, start, end in device_spans(marks)
        ]
        yield from sorted(slices, key=by_start)


def _batch_slices(maker: BatchProducer) -> Iterator[Slice]:
    """Yield batches with their making and sending. The arguments hold each stage's time."""
    rows = maker.batches
    for row, start in enumerate(rows.start):
        fetched, sent = rows.fetched[row], rows.sent[row]
        args = {"epoch": rows.epoch[row], "samples": rows.samples[row], "serialise_us": rows.serialise[row]}
        stages = {f"{maker.stages[stage]} (us)": wall for stage, _, wall, _ in rows.stages[row]}
        yield Slice(f"batch {rows.index[row]}", start, max((sent or fetched) - start, 1), args | stages)
        if sent is not None:
            yield Slice("make", start, fetched - start)
            yield Slice("send", fetched, sent - fetched)


def _flows(session: Session, groups: dict[tuple[str, int | None], int]) -> Iterator[Event]:
    """Yield arrows from a worker's send to the `next()` that returns the batch, and counters of batches in between.

    Batches with unknown production, or that arrive before their send, have no arrow.
    """
    sent = {
        (maker.host, maker.pid, epoch, index): time
        for maker in session.makers
        for epoch, index, time in zip(maker.batches.epoch, maker.batches.index, maker.batches.sent, strict=True)
        if time is not None
    }
    numbers = count(1)
    for trainer in session.trainers:
        pid, gets = groups[trainer.host, trainer.pid], trainer.gets
        passes = {one.number: one for one in trainer.passes}
        changes: list[tuple[int, int]] = []
        for number, index, start, duration in zip(gets.pass_, gets.index, gets.start, gets.duration, strict=True):
            received, one = start + max(duration, 1), passes.get(number)
            if one is None:
                continue
            for worker in one.workers:
                time = sent.get((trainer.host, worker, one.epoch, index))
                if time is not None and time <= received:
                    changes += [(time, 1), (received, -1)]
                    event = {"name": "batch", "cat": "flow", "id": next(numbers)}
                    yield event | {"ph": "s", "pid": groups[trainer.host, worker], "tid": MAKING, "ts": time - 1}
                    yield event | {"ph": "f", "bp": "e", "pid": pid, "tid": LOOP, "ts": received - 1}
        depth = 0
        for time, change in sorted(changes):
            depth += change
            yield _counter(pid, "batches ready", time, depth)
