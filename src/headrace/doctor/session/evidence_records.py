"""The records of docs/doctor/evidence.md, as msgspec reads them: arrays whose first element names the kind.

A newer probe may append fields to a record: they are ignored. Times and durations are microseconds.
"""

from __future__ import annotations

from typing import Any, Union

import msgspec


class Record(msgspec.Struct, array_like=True, tag_field="kind"):
    """One line of an evidence file."""


class Process(Record, tag="process"):
    t: int
    facts: dict[str, Any]


class Name(Record, tag="name"):
    number: int
    text: str


class Torch(Record, tag="torch"):
    t: int
    facts: dict[str, Any]


class Facts(Record, tag="facts"):
    t: int
    facts: dict[str, Any]


class Note(Record, tag="note"):
    t: int
    code: str
    text: str


class Error(Record, tag="error"):
    t: int
    text: str


class Stack(Record, tag="stack"):
    t: int
    what: str
    text: str


class End(Record, tag="end"):
    t: int
    reason: str


class Loader(Record, tag="loader"):
    loader: int
    t: int
    facts: dict[str, Any]


class Pass(Record, tag="pass"):
    number: int
    loader: int
    t: int
    end_t: int
    epoch: int
    pids: list[int]


class Get(Record, tag="get"):
    pass_: int
    index: int
    t: int
    duration: int
    arrived: int | None = None
    unpickle: int | None = None
    pin_t: int | None = None
    pin: int | None = None
    bytes: int | None = None
    shape: int | None = None
    unpickle_cpu: int | None = None


class Fetch(Get, tag="fetch"):
    """A batch that no step waited for."""


class Padding(Record, tag="padding"):
    pass_: int
    index: int
    rows: int
    width: int
    filled: int
    longest: int


class Replayed(Record, tag="replayed"):
    pass_: int
    t: int
    duration: int


class Drained(Get, tag="drained"):
    """A batch that was taken to see how fast they come."""


class Window(Record, tag="window"):
    name: str
    first: int
    steps: int
    settling: int
    t: int
    end_t: int


class Last(Record, tag="last"):
    pass_: int
    t: int
    duration: int


class Step(Record, tag="step"):
    number: int
    t: int
    end_t: int
    spans: list[tuple[str, int, int]] = []
    probe: float | None = None
    cpu: int | None = None
    delay: int | None = None


class Rest(Record, tag="rest"):
    number: int
    t: int
    end_t: int
    steps: int
    probe: float


class Device(Record, tag="device"):
    number: int
    kinds: str
    gaps: list[int]


class Ready(Record, tag="ready"):
    number: int
    t: int


class Collective(Record, tag="collective"):
    number: int
    t: int
    duration: int
    name: int
    bytes: int | None = None


class Digest(Record, tag="digest"):
    pass_: int
    content: str
    keys: str | None = None
    sketches: list[list[float]] = []


class Applied(Record, tag="applied"):
    t: int
    key: str
    count: int
    text: str


class Worker(Record, tag="worker"):
    t: int
    facts: dict[str, Any]


class Batch(Record, tag="batch"):
    epoch: int
    index: int
    t: int
    fetched_t: int
    sent_t: int | None = None
    serialise: int | None = None
    samples: int | None = None
    stages: list[tuple[int, int, int, int]] = []
    beside: list[tuple[int, int, int, int]] = []
    cpu: int | None = None
    delay: int | None = None
    worked: int | None = None


class Feed(Record, tag="feed"):
    pass_: int
    t: int
    facts: dict[str, Any]


class Slow(Record, tag="slow"):
    epoch: int
    index: int
    key: str
    wall: int
    stages: list[tuple[int, int]] = []


class SampleLook(Record, tag="look"):
    epoch: int
    index: int
    stages: list[tuple[int, int, int | None]]
    drew: int
    same: int | None = None
    takes: list[str] = []


class Lines(Record, tag="lines"):
    t: int
    counts: list[tuple[int, int]]


class Opened(Record, tag="opened"):
    t: int
    files: list[tuple[int, int]]
    folders: list[tuple[int, int, int, list[str], list[int]]]
    rest: int = 0


class Probe(Record, tag="probe"):
    t: int
    us: int


KINDS = (
    Process, Name, Torch, Facts, Note, Error, Stack, End,
    Loader, Pass, Get, Fetch, Padding, Replayed, Drained, Window, Last,
    Step, Rest, Device, Ready, Collective, Digest, Applied,
    Worker, Batch, Feed, Slow, SampleLook, Lines, Opened, Probe,
)  # fmt: skip
ANY: Any = Union[KINDS]  # noqa: UP007  (a union of a tuple has no other spelling)
