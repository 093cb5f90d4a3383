"""A session as a trace for Perfetto (ui.perfetto.dev) or chrome://tracing: the training loop, the GPU, the workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import count

import msgspec

from headrace.doctor.measure.diagnosis import Diagnosis
from headrace.doctor.report import trace_events as events
from headrace.doctor.report.ending import command_line
from headrace.doctor.report.escape import safe
from headrace.doctor.report.trace_device import device_slices
from headrace.doctor.report.trace_events import Event
from headrace.doctor.report.trace_loop import loop_slices
from headrace.doctor.report.trace_making import ReadyBatch, batch_slices, ready_batches, sent_at
from headrace.doctor.report.trace_windows import window_slices
from headrace.doctor.session.model import Machine, Maker, Session, Trainer

WINDOWS, LOOP, DEVICE, MAKING = 1, 2, 3, 4
"""Tracks of a process, in the order in which they are shown."""
_FOREIGN = 1_000_000_000
"""First number of a track group whose own pid is taken: those of machines, and of processes on further hosts."""


def trace(session: Session, diagnosis: Diagnosis) -> Iterator[str]:
    """The document piece by piece, so that a long run need not be held as text."""
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
        """`pid` is None for the machine itself."""
        if (host, pid) not in self._numbers:
            is_free = pid is not None and pid not in self._numbers.values()
            self._numbers[host, pid] = pid if pid is not None and is_free else next(self._foreign)
        return self._numbers[host, pid]


def _trainer(trainer: Trainer, pids: _Pids, order: int) -> Iterator[Event]:
    pid = pids(trainer.host, trainer.pid)
    yield from events.process(pid, f"rank {trainer.rank} on {trainer.host}", order)
    if trainer.windows:
        yield from events.thread(pid, WINDOWS, "windows")
        yield from events.slices(pid, WINDOWS, "window", window_slices(trainer.windows))
    yield from events.thread(pid, LOOP, "training loop")
    yield from events.slices(pid, LOOP, "loop", loop_slices(trainer))
    if any(trainer.steps.device):
        yield from events.thread(pid, DEVICE, "GPU, current stream")
        yield from events.slices(pid, DEVICE, "device", device_slices(trainer.steps))


def _maker(maker: Maker, pids: _Pids, order: int) -> Iterator[Event]:
    pid = pids(maker.host, maker.pid)
    if maker.worker is not None:
        yield from events.process(pid, f"worker {maker.worker} of process {maker.trainer} on {maker.host}", order)
    yield from events.thread(pid, MAKING, "batches")
    yield from events.slices(pid, MAKING, "making", batch_slices(maker))


def _flows(session: Session, pids: _Pids) -> Iterator[Event]:
    """Arrows from where a worker sent a batch to the next() that gave it, and how many lay in between."""
    sent = sent_at(session.makers)
    numbers = count(1)
    for trainer in session.trainers:
        pid = pids(trainer.host, trainer.pid)
        ready = ready_batches(trainer, sent)
        for batch in ready:
            start = (pids(trainer.host, batch.maker), MAKING, batch.sent - 1)
            yield from events.flow(next(numbers), "batch", start, (pid, LOOP, batch.received - 1))
        yield from _queue(pid, ready)


def _queue(pid: int, ready: Iterable[ReadyBatch]) -> Iterator[Event]:
    changes = sorted([change for batch in ready for change in ((batch.sent, 1), (batch.received, -1))])
    depth = 0
    for time, change in changes:
        depth += change
        yield events.counter(pid, "batches ready", time, depth)


def _machine(machine: Machine, pids: _Pids, order: int) -> Iterator[Event]:
    pid = pids(machine.host, None)
    yield from events.process(pid, f"machine {machine.host}", order)
    for name, values in machine.columns.items():
        for time, value in zip(machine.time, values, strict=True):
            if value is not None:
                yield events.counter(pid, name, time, value)
