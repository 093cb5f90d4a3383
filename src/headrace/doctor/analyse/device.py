"""The step as the GPU sees it, from the events on its current stream, and its clock beside the CPU's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from headrace.doctor.analyse.parts import BACKWARD, COPY, OPTIMIZER, ORDER, WAIT, mean_parts, parts_of
from headrace.doctor.analyse.spans import Span, segments
from headrace.doctor.measure.diagnosis import Part
from headrace.doctor.measure.steps import Step, Training

PAIRS = {"w": ("r", WAIT), "h": ("i", COPY), "b": ("c", BACKWARD), "o": ("p", OPTIMIZER)}
"""What begins a span, what ends it, and its part."""

Marks = Sequence[tuple[str, float]]


def device_parts(training: Training) -> list[Part] | None:
    """Mean parts of a step on the GPU, None where it was not measured.

    `data wait` is the time between a `next()` that began, once all work before it was done, and its return: the stream
    has nothing to do meanwhile. It is less than the CPU's wait where the GPU was still behind.
    """
    steps = [parts_of(list(segments(start, end, device_spans(marks)))) for marks, start, end in _whole_steps(training)]
    return mean_parts(steps, ORDER) if steps else None


def device_spans(marks: Marks) -> list[Span]:
    """The spans that the marks of one step bound, on the GPU's clock. A mark without its partner bounds none."""
    begun: dict[str, float] = {}
    spans = []
    ends = {end: (begin, name) for begin, (end, name) in PAIRS.items()}
    for kind, us in marks:
        if kind in PAIRS:
            begun[kind] = us
        elif kind in ends:
            begin, name = ends[kind]
            if begin in begun:
                spans.append(Span(name, begun.pop(begin), us))
    return spans


def clock_lag(training: Training) -> float | None:
    """What to add to the GPU's times to have them on the session's clock, in microseconds.

    The GPU reaches a mark no earlier than the CPU set it, and at once where it had nothing else to do, so the pair
    that lies closest tells the distance of the clocks. None without marks.
    """
    steps, gets = training.trainer.steps, training.trainer.gets
    distances = [
        at - us
        for step in training.steps
        if step.row is not None and (marks := steps.device[step.row])
        for at, us in [
            *zip([step.start], _times(marks, "s"), strict=False),
            *zip((gets.start[row] for row in step.gets), _times(marks, "w"), strict=False),
            *zip((gets.start[row] + gets.duration[row] for row in step.gets), _times(marks, "r"), strict=False),
        ]
    ]
    return max(distances, default=None)


def _whole_steps(training: Training) -> Iterator[tuple[Marks, float, float]]:
    """Marks of each step that lasts until the next one's first mark, with its start and end."""
    for step, following in pairwise(training.steps):
        marks, coming = _marks(training, step), _marks(training, following)
        if marks and coming and following.number == step.number + 1 and coming[0][1] > marks[0][1]:
            yield marks, marks[0][1], coming[0][1]


def _marks(training: Training, step: Step) -> Marks | None:
    return None if step.row is None else training.trainer.steps.device[step.row]


def _times(marks: Marks, kind: str) -> list[float]:
    return [us for name, us in marks if name == kind]
