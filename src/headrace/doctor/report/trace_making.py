"""Batches where they were made, and on their way to the training thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headrace.doctor.report.slices import Slice
from headrace.doctor.session.model import Maker, Trainer

Sent = dict[tuple[str, int, int, int], int]
"""By host, pid, epoch and index: when a batch was in the pipe."""


@dataclass(frozen=True)
class ReadyBatch:
    """A batch between its worker and the training thread."""

    maker: int
    """Pid."""
    sent: int
    received: int


def batch_slices(maker: Maker) -> Iterator[Slice]:
    """A batch, and in it its making and its sending; how long each stage took stands in the arguments."""
    rows = maker.batches
    for row, start in enumerate(rows.start):
        fetched, sent = rows.fetched[row], rows.sent[row]
        args = {"epoch": rows.epoch[row], "samples": rows.samples[row], "serialise_us": rows.serialise[row]}
        stages = {f"{maker.stages[stage]} (us)": wall for stage, _, wall, _ in rows.stages[row]}
        yield Slice(f"batch {rows.index[row]}", start, max((sent or fetched) - start, 1), args | stages)
        if sent is not None:
            yield Slice("make", start, fetched - start)
            yield Slice("send", fetched, sent - fetched)


def sent_at(makers: Iterable[Maker]) -> Sent:
    return {
        (maker.host, maker.pid, epoch, index): sent
        for maker in makers
        for epoch, index, sent in zip(maker.batches.epoch, maker.batches.index, maker.batches.sent, strict=True)
        if sent is not None
    }


def ready_batches(trainer: Trainer, sent: Sent) -> list[ReadyBatch]:
    """Of the batches received, those whose making is known and that came after they were sent."""
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
