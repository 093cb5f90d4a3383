"""The training loop of one trainer, as slices."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from headrace.doctor.report.slices import Slice, by_start
from headrace.doctor.report.trace_windows import window_of
from headrace.doctor.session.model import Trainer

SPANS = {
    "h": "host to device",
    "b": "backward",
    "o": "optimizer",
    "s": "skipped step",
    "c": "collective",
    "e": "evaluation",
}
"""By the kinds of docs/doctor/evidence.md."""


def loop_slices(trainer: Trainer) -> Iterator[Slice]:
    """In order: steps, and in them what was timed; forward is what lies between a batch's arrival, or its copy's, and
    its backward. Behind the steps, what was drained."""
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
        yield Slice("copy of a kept batch", start, max(duration, 1), {"pass": number})


def _drained(trainer: Trainer) -> Iterator[Slice]:
    gets = trainer.drained
    for number, index, start, duration in zip(gets.pass_, gets.index, gets.start, gets.duration, strict=True):
        yield Slice("drained batch", start, max(duration, 1), {"batch": index, "pass": number})


def _spans(spans: list[tuple[str, int, int]], start: int, arrivals: list[int]) -> Iterator[Slice]:
    """`arrivals` are the ends of the step's data waits."""
    free = start
    for kind, begin, duration in sorted(spans, key=lambda span: span[1]):
        free = max([free, *(arrival for arrival in arrivals if arrival <= begin)])
        if kind == "b" and begin > free:
            yield Slice("forward", free, begin - free)
        yield Slice(SPANS.get(kind, kind), begin, duration)
        free = max(free, begin + duration)
