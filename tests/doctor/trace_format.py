"""Checks a trace against the Trace Event Format, and against what Perfetto's importer makes of it.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU: complete events (X), metadata (M),
flows (s, f), counters (C). Nothing else is written here, so nothing else is allowed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

REQUIRED = {
    "X": {"name", "cat", "ph", "pid", "tid", "ts", "dur", "args"},
    "M": {"name", "ph", "pid", "tid", "args"},
    "s": {"name", "cat", "ph", "id", "pid", "tid", "ts"},
    "f": {"name", "cat", "ph", "id", "pid", "tid", "ts", "bp"},
    "C": {"name", "ph", "pid", "tid", "ts", "args"},
}
Event = dict[str, Any]


def faults(events: Iterable[Event]) -> list[str]:
    """What is wrong with them, in words; nothing where a viewer shows all of it."""
    events = list(events)
    shapes = [fault for event in events for fault in _shape(event)]
    return shapes or [*_overlaps(events), *_flows(events), *_unnamed(events)]


def tracks(events: Iterable[Event]) -> dict[tuple[int, int], list[Event]]:
    """Slices by process and thread, in order of their start, outer ones first."""
    found: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            found[event["pid"], event["tid"]].append(event)
    return {track: sorted(slices, key=lambda one: (one["ts"], -one["dur"])) for track, slices in found.items()}


def names(events: Iterable[Event], kind: str) -> dict[tuple[int, int], str]:
    """`process_name` or `thread_name` by process and thread."""
    return {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == kind}


def _shape(event: Event) -> Iterable[str]:
    required = REQUIRED.get(event.get("ph", ""))
    if required is None:
        yield f"unknown phase: {event}"
        return
    if set(event) != required:
        yield f"fields {sorted(set(event) ^ required)}: {event}"
    for field in ("ts", "dur"):
        if field in event and not (isinstance(event[field], int | float) and event[field] >= 0):
            yield f"{field} is no time: {event}"
    if not (isinstance(event["pid"], int) and 0 <= event["pid"] < 2**31):
        yield f"pid is no 32-bit number: {event}"
    if event["ph"] == "C" and not all(isinstance(value, int | float) for value in event["args"].values()):
        yield f"a counter counts numbers: {event}"


def _overlaps(events: list[Event]) -> Iterable[str]:
    for track, slices in tracks(events).items():
        ends: list[float] = []
        for one in slices:
            while ends and ends[-1] <= one["ts"]:
                ends.pop()
            if ends and one["ts"] + one["dur"] > ends[-1]:
                yield f"on {track} {one['name']} outlasts the slice that it began in"
            ends.append(one["ts"] + one["dur"])


def _flows(events: list[Event]) -> Iterable[str]:
    slices = tracks(events)
    ends: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] in "sf":
            ends[event["id"]].append(event)
            if not any(one["ts"] <= event["ts"] < one["ts"] + one["dur"] for one in slices[event["pid"], event["tid"]]):
                yield f"no slice to hold on to: {event}"
    for number, pair in ends.items():
        if [event["ph"] for event in pair] != ["s", "f"] or pair[0]["ts"] > pair[1]["ts"]:
            yield f"flow {number} is no arrow forward in time: {pair}"


def _unnamed(events: list[Event]) -> Iterable[str]:
    processes, threads = names(events, "process_name"), names(events, "thread_name")
    for pid, tid in tracks(events):
        if (pid, 0) not in processes or (pid, tid) not in threads:
            yield f"track {pid}/{tid} has no name"
