"""Events of the Trace Event Format, which Perfetto and chrome://tracing read: times and durations in microseconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from headrace.doctor.report.escape import safe
from headrace.doctor.report.slices import Slice, nested

Event = dict[str, Any]


def process(pid: int, name: str, order: int) -> Iterator[Event]:
    """Names a group of tracks, and says which place it has among the others."""
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": safe(name)}}
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": order}}


def thread(pid: int, tid: int, name: str) -> Iterator[Event]:
    """Names a track; tracks of one process stand in the order of their `tid`."""
    yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": safe(name)}}
    yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}}


def slices(pid: int, tid: int, category: str, many: Iterable[Slice]) -> Iterator[Event]:
    """`many` come in order of start."""
    for one in nested(many):
        args = {safe(key): safe(value) if isinstance(value, str) else value for key, value in one.args.items()}
        event = {"ph": "X", "name": safe(one.name), "cat": category, "pid": pid, "tid": tid}
        yield event | {"ts": one.start, "dur": one.duration, "args": args}


def flow(number: int, name: str, start: tuple[int, int, float], end: tuple[int, int, float]) -> Iterator[Event]:
    """An arrow between the slices that lie at two places: (pid, tid, time)."""
    for phase, (pid, tid, time) in (("s", start), ("f", end)):
        event = {"ph": phase, "name": name, "cat": "flow", "id": number, "pid": pid, "tid": tid, "ts": time}
        yield event | ({"bp": "e"} if phase == "f" else {})


def counter(pid: int, name: str, time: float, value: float) -> Event:
    return {"ph": "C", "name": safe(name), "pid": pid, "tid": 0, "ts": time, "args": {"value": value}}
