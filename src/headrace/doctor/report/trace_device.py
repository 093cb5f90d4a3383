"""What the GPU did on the current stream, as slices on the session's clock."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.doctor.report.slices import Slice, by_start
from headrace.doctor.session.model import Steps

PAIRS = {
    "w": ("r", "waits for a batch"),
    "h": ("i", "host to device"),
    "b": ("c", "backward"),
    "o": ("p", "optimizer"),
}
"""Which mark ends what another begins, of docs/doctor/evidence.md."""


def device_slices(steps: Steps) -> Iterator[Slice]:
    """In order. The GPU's clock is set as early as causality allows: no step begins there before the CPU begins it."""
    marked = [(start, marks) for start, marks in zip(steps.start, steps.device, strict=True) if marks]
    begun = [start - time for start, marks in marked for kind, time in marks[:1] if kind == "s"]
    if not begun:
        return
    ahead = max(begun)
    for _, marks in marked:
        slices = [Slice(name, start + ahead, end - start) for name, start, end in _pairs(marks)]
        yield from sorted(slices, key=by_start)


def _pairs(marks: list[tuple[str, float]]) -> Iterator[tuple[str, float, float]]:
    """A mark without its other half is left out."""
    open_: dict[str, tuple[str, float]] = {}
    for kind, time in marks:
        if kind in PAIRS:
            ending, name = PAIRS[kind]
            open_[ending] = (name, time)
        elif kind in open_:
            name, start = open_.pop(kind)
            yield name, start, time
