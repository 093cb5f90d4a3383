"""Perfetto trace of a session, in the Trace Event Format."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from typing import Any

import msgspec

from headrace.doctor.measure import Diagnosis
from headrace.doctor.report.escaping import safe
from headrace.doctor.report.run_text import command_line
from headrace.doctor.session.model import BatchProducer, Machine, MeasuredWindow, OptimizerSteps, Session, Trainer


@dataclass(frozen=True)
class Slice:
    """Slice of a track, from `start` on, for `duration` µs."""

    name: str
    start: float
    duration: float
    args: dict[str, Any] = field(default_factory=dict)

    @property
    def end(self) -> float:
        return self.start + self.duration


def by_start(one: Slice) -> tuple[float, float]:
    """Return a key that sorts outer slices before inner ones."""
    return one.start, -one.duration


def nested(slices: Iterable[Slice]) -> Iterator[Slice]:
    """Make slices nest, in order (`by_start`), since trace viewers drop what overlaps in part.

    One that outlasts the slice it began in ends with it. That cuts off the clock's last microsecond, or a call that a
    thread of its own made.
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


def window_slices(windows: Sequence[MeasuredWindow]) -> Iterator[Slice]:
    """Yield windows with the steps that lie in each, and how many of them settle."""
    for one in windows:
        args = {"first_step": one.first, "steps": one.steps, "settling_steps": one.settling} if one.steps else {}
        yield Slice(one.name, one.start, one.end - one.start, args)


def window_of(number: int, windows: Sequence[MeasuredWindow]) -> str | None:
    """Return the window in which that step lies, such as `replay, settling`; None outside of all, as in a warm-up."""
    for one in windows:
        if one.first <= number < one.first + one.steps:
            return f"{one.name}, settling" if number < one.first + one.settling else one.name
    return None


SPANS = {
    "h": "host to device",
    "b": "backward",
    "o": "optimizer",
    "s": "skipped step",
    "c": "collective",
    "e": "evaluation",
}
"""Names of slices by the kinds of docs/doctor/evidence.md."""


def loop_slices(trainer: Trainer) -> Iterator[Slice]:
    """Yield steps and what was timed in them, in order; behind the steps, what was drained.

    Forward is what lies between a batch's arrival, or its copy's, and its backward.
    """
    return heapq.merge(
        _starts(trainer), _gets(trainer), _replays(trainer), _steps(trainer), _drained(trainer), key=by_start
    )


def _steps(trainer: Trainer) -> Iterator[Slice]:
    steps = trainer.steps
    received = sorted(
        start + duration
        for rows in (trainer.gets, trainer.replays)
        for start, duration in zip(rows.start, rows.duration, strict=True)
    )
    at = 0
    for number, start, end, spans, probe in zip(
        steps.number, steps.start, steps.end, steps.spans, steps.probe, strict=True
    ):
        window = window_of(number, trainer.windows)
        args = {"probe_us": probe} if window is None else {"window": window, "probe_us": probe}
        yield Slice(f"step {number}", start, end - start, args)
        arrivals = []
        while at < len(received) and received[at] <= end:
            arrivals.append(received[at])
            at += 1
        yield from sorted(_spans(spans, start, arrivals), key=by_start)


def _starts(trainer: Trainer) -> Iterator[Slice]:
    for one in trainer.passes:
        yield Slice(f"iter(loader {one.loader})", one.start, one.ready - one.start, {"workers": len(one.workers)})


def _gets(trainer: Trainer) -> Iterator[Slice]:
    gets = trainer.gets
    for row, start in enumerate(gets.start):
        shape = gets.shape[row]
        args = {
            "batch": gets.index[row],
            "pass": gets.pass_[row],
            "unpickle_us": gets.unpickle[row],
            "pin_us": gets.pin[row],
            "bytes": gets.bytes[row],
            "shape": None if shape is None else trainer.shapes[shape],
        }
        yield Slice("data wait", start, max(gets.duration[row], 1), args)


def _replays(trainer: Trainer) -> Iterator[Slice]:
    replays = trainer.replays
    for number, start, duration in zip(replays.pass_, replays.start, replays.duration, strict=True):
        yield Slice("copy of a cached batch", start, max(duration, 1), {"pass": number})


def _drained(trainer: Trainer) -> Iterator[Slice]:
    gets = trainer.drained
    for number, index, start, duration in zip(gets.pass_, gets.index, gets.start, gets.duration, strict=True):
        yield Slice("drained batch", start, max(duration, 1), {"batch": index, "pass": number})


def _spans(spans: list[tuple[str, int, int]], start: int, arrivals: list[int]) -> Iterator[Slice]:
    """Yield what was timed in a step; `arrivals` are the ends of its data waits."""
    free = start
    for kind, begin, duration in sorted(spans, key=lambda span: span[1]):
        free = max([free, *(arrival for arrival in arrivals if arrival <= begin)])
        if kind == "b" and begin > free:
            yield Slice("forward", free, begin - free)
        yield Slice(SPANS.get(kind, kind), begin, duration)
        free = max(free, begin + duration)


Sent = dict[tuple[str, int, int, int], int]
"""Time at which a batch was in the pipe, by host, pid, epoch and index."""


@dataclass(frozen=True)
class ReadyBatch:
    """A batch between its worker and the training thread."""

    maker: int
    """Pid."""
    sent: int
    received: int


def batch_slices(maker: BatchProducer) -> Iterator[Slice]:
    """Yield batches, and in each its making and sending. The arguments hold what each stage took."""
    rows = maker.batches
    for row, start in enumerate(rows.start):
        fetched, sent = rows.fetched[row], rows.sent[row]
        args = {"epoch": rows.epoch[row], "samples": rows.samples[row], "serialise_us": rows.serialise[row]}
        stages = {f"{maker.stages[stage]} (us)": wall for stage, _, wall, _ in rows.stages[row]}
        yield Slice(f"batch {rows.index[row]}", start, max((sent or fetched) - start, 1), args | stages)
        if sent is not None:
            yield Slice("make", start, fetched - start)
            yield Slice("send", fetched, sent - fetched)


def sent_at(makers: Iterable[BatchProducer]) -> Sent:
    return {
        (maker.host, maker.pid, epoch, index): sent
        for maker in makers
        for epoch, index, sent in zip(maker.batches.epoch, maker.batches.index, maker.batches.sent, strict=True)
        if sent is not None
    }


def ready_batches(trainer: Trainer, sent: Sent) -> list[ReadyBatch]:
    """Return the received batches whose production is known and that came after they were sent."""
    passes = {one.number: one for one in trainer.passes}
    gets = trainer.gets
    ready = []
    for number, index, start, duration in zip(gets.pass_, gets.index, gets.start, gets.duration, strict=True):
        received = start + max(duration, 1)
        one = passes.get(number)
        for pid in one.workers if one is not None else []:
            time = sent.get((trainer.host, pid, one.epoch if one else 0, index))
            if time is not None and time <= received:
                ready.append(ReadyBatch(pid, time, received))
    return ready


Event = dict[str, Any]


def process(pid: int, name: str, order: int) -> Iterator[Event]:
    """Name a group of tracks, and give its place among the others."""
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": safe(name)}}
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": order}}


def thread(pid: int, tid: int, name: str) -> Iterator[Event]:
    """Name a track; tracks of one process stand in the order of their `tid`."""
    yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": safe(name)}}
    yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}}


def slices(pid: int, tid: int, category: str, many: Iterable[Slice]) -> Iterator[Event]:
    """Yield the events of slices, which come in order of start."""
    for one in nested(many):
        args = {safe(key): safe(value) if isinstance(value, str) else value for key, value in one.args.items()}
        event = {"ph": "X", "name": safe(one.name), "cat": category, "pid": pid, "tid": tid}
        yield event | {"ts": one.start, "dur": one.duration, "args": args}


def flow(number: int, name: str, start: tuple[int, int, float], end: tuple[int, int, float]) -> Iterator[Event]:
    """Yield an arrow between the slices at two places: (pid, tid, time)."""
    for phase, (pid, tid, time) in (("s", start), ("f", end)):
        event = {"ph": phase, "name": name, "cat": "flow", "id": number, "pid": pid, "tid": tid, "ts": time}
        yield event | ({"bp": "e"} if phase == "f" else {})


def counter(pid: int, name: str, time: float, value: float) -> Event:
    return {"ph": "C", "name": safe(name), "pid": pid, "tid": 0, "ts": time, "args": {"value": value}}


PAIRS = {
    "w": ("r", "waits for a batch"),
    "h": ("i", "host to device"),
    "b": ("c", "backward"),
    "o": ("p", "optimizer"),
}
"""Marks of docs/doctor/evidence.md: the one that ends what another begins, and the slice's name."""


def device_slices(steps: OptimizerSteps) -> Iterator[Slice]:
    """Yield what the GPU did. Its clock is set as early as causality allows: no step begins there before the CPU's."""
    marked = [(start, marks) for start, marks in zip(steps.start, steps.device, strict=True) if marks]
    begun = [start - time for start, marks in marked for kind, time in marks[:1] if kind == "s"]
    if not begun:
        return
    ahead = max(begun)
    for _, marks in marked:
        slices = [Slice(name, start + ahead, end - start) for name, start, end in _pairs(marks)]
        yield from sorted(slices, key=by_start)


def _pairs(marks: list[tuple[str, float]]) -> Iterator[tuple[str, float, float]]:
    """Yield pairs of marks; one without its other half is left out."""
    open_: dict[str, tuple[str, float]] = {}
    for kind, time in marks:
        if kind in PAIRS:
            ending, name = PAIRS[kind]
            open_[ending] = (name, time)
        elif kind in open_:
            name, start = open_.pop(kind)
            yield name, start, time


WINDOWS, LOOP, DEVICE, MAKING = 1, 2, 3, 4
"""Tracks of a process, in the order in which they are shown."""
_FOREIGN = 1_000_000_000
"""First number of a track group whose own pid is taken: those of machines, and of processes on further hosts."""


def trace(session: Session, diagnosis: Diagnosis) -> Iterator[str]:
    """Yield the document piece by piece, so that a long run need not be held as text."""
    about = {
        "headrace": safe(session.headrace),
        "created": safe(session.created),
        "command": safe(command_line(session)),
        "verdict": safe(diagnosis.verdict),
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
    pids = _Pids()
    for order, trainer in enumerate(session.trainers):
        yield from _trainer(trainer, pids, order)
    for order, maker in enumerate(session.makers, start=len(session.trainers)):
        yield from _maker(maker, pids, order)
    yield from _flows(session, pids)
    for order, machine in enumerate(session.machines, start=len(session.trainers) + len(session.makers)):
        yield from _machine(machine, pids, order)


class _Pids:
    """Numbers of track groups: the pid where no other host has the same."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, int | None], int] = {}
        self._foreign = count(_FOREIGN)

    def __call__(self, host: str, pid: int | None) -> int:
        """Return a group's number; `pid` is None for the machine itself."""
        if (host, pid) not in self._numbers:
            is_free = pid is not None and pid not in self._numbers.values()
            self._numbers[host, pid] = pid if pid is not None and is_free else next(self._foreign)
        return self._numbers[host, pid]


def _trainer(trainer: Trainer, pids: _Pids, order: int) -> Iterator[Event]:
    pid = pids(trainer.host, trainer.pid)
    yield from process(pid, f"rank {trainer.rank} on {trainer.host}", order)
    if trainer.windows:
        yield from thread(pid, WINDOWS, "windows")
        yield from slices(pid, WINDOWS, "window", window_slices(trainer.windows))
    yield from thread(pid, LOOP, "training loop")
    yield from slices(pid, LOOP, "loop", loop_slices(trainer))
    if any(trainer.steps.device):
        yield from thread(pid, DEVICE, "GPU, current stream")
        yield from slices(pid, DEVICE, "device", device_slices(trainer.steps))


def _maker(maker: BatchProducer, pids: _Pids, order: int) -> Iterator[Event]:
    pid = pids(maker.host, maker.pid)
    if maker.worker is not None:
        yield from process(pid, f"worker {maker.worker} of process {maker.trainer} on {maker.host}", order)
    yield from thread(pid, MAKING, "batches")
    yield from slices(pid, MAKING, "making", batch_slices(maker))


def _flows(session: Session, pids: _Pids) -> Iterator[Event]:
    """Yield arrows from where a worker sent a batch to the next() that gave it, and how many lay in between."""
    sent = sent_at(session.makers)
    numbers = count(1)
    for trainer in session.trainers:
        pid = pids(trainer.host, trainer.pid)
        ready = ready_batches(trainer, sent)
        for batch in ready:
            start = (pids(trainer.host, batch.maker), MAKING, batch.sent - 1)
            yield from flow(next(numbers), "batch", start, (pid, LOOP, batch.received - 1))
        yield from _queue(pid, ready)


def _queue(pid: int, ready: Iterable[ReadyBatch]) -> Iterator[Event]:
    changes = sorted([change for batch in ready for change in ((batch.sent, 1), (batch.received, -1))])
    depth = 0
    for time, change in changes:
        depth += change
        yield counter(pid, "batches ready", time, depth)


def _machine(machine: Machine, pids: _Pids, order: int) -> Iterator[Event]:
    pid = pids(machine.host, None)
    yield from process(pid, f"machine {machine.host}", order)
    for name, values in machine.columns.items():
        for time, value in zip(machine.time, values, strict=True):
            if value is not None:
                yield counter(pid, name, time, value)
