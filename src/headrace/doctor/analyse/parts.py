"""The parts of a step, and how stretches of time are charged to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.doctor.analyse.spans import Segment
from headrace.doctor.measure.diagnosis import Part

WAIT = "data wait"
COPY, FORWARD, BACKWARD, OPTIMIZER = "host to device", "forward", "backward", "optimizer"
COLLECTIVE, OTHER = "collective", "other"
UNSEEN = "not seen"
"""What would be `forward`, where no batch was seen to come: it holds the wait for them, too."""
ORDER = (WAIT, COPY, FORWARD, UNSEEN, BACKWARD, OPTIMIZER, COLLECTIVE, OTHER)
TURNS = {WAIT, BACKWARD, OPTIMIZER}
"""What the phases of a step turn on: the forward pass leads from a batch to its backward pass."""


def parts_of(pieces: Sequence[Segment]) -> dict[str, float]:
    """Sums segments by part. Time in no span is `forward` where a backward pass comes next, with the batch in hand;
    else it is `other`: logging, evaluation, checkpoints."""
    parts: dict[str, float] = {}
    waits = any(piece.name == WAIT for piece in pieces)
    turn, has_batch = _next_turns(pieces), not waits
    for piece, coming in zip(pieces, turn, strict=True):
        has_batch = has_batch or piece.name == WAIT
        name = piece.name or (FORWARD if coming == BACKWARD and has_batch else OTHER)
        parts[name] = parts.get(name, 0) + piece.end - piece.start
    return parts


def mean_parts(steps: Sequence[dict[str, float]], order: Iterable[str]) -> list[Part]:
    """The mean of each part over the steps, and its share of the whole. Parts that no step has are left out."""
    totals = {name: sum(step.get(name, 0) for step in steps) for name in order}
    whole = sum(totals.values())
    seen = {name for step in steps for name in step}
    return [Part(name, us / len(steps), us / whole) for name, us in totals.items() if name in seen]


def _next_turns(pieces: Sequence[Segment]) -> list[str | None]:
    turns: list[str | None] = []
    coming = None
    for piece in reversed(pieces):
        turns.append(coming)
        coming = piece.name if piece.name in TURNS else coming
    return turns[::-1]
