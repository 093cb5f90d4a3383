"""Where a box and a point of an image come to lie under its view: one at a time, in plain Python floats."""

from __future__ import annotations

from collections.abc import Sequence

Row = Sequence[float]
"""A view as the core writes it."""


def place(row: Row, axis: int, value: float) -> float:
    """A coordinate of the image, on the output."""
    begin, end = row[axis], row[2 + axis]
    canvas, start, length = row[8 + axis], row[10 + axis], row[12 + axis]
    lying = start + (value - begin) / (end - begin) * length
    return canvas - lying if row[14 + axis] else lying


def box(
    row: Row, size: Sequence[int], corners: Sequence[float], *, min_size: float, min_visible: float
) -> list[float] | None:
    """xyxy on the output; None for a box that is dropped. `size`: the image's width and height."""
    inside, seen, out = [], [], [0.0] * 4
    for axis in (0, 1):
        low, high = max(corners[axis], 0), min(corners[2 + axis], size[axis])
        inside.append(high - low)
        low, high = max(low, row[axis]), min(high, row[2 + axis])
        seen.append(high - low)
        if inside[-1] <= 0 or seen[-1] <= 0 or corners[axis] >= corners[2 + axis]:
            return None
        out[axis], out[2 + axis] = sorted((place(row, axis, low), place(row, axis, high)))
        if out[2 + axis] - out[axis] < min_size:
            return None
    return out if seen[0] * seen[1] >= min_visible * inside[0] * inside[1] else None


def point(row: Row, x: float, y: float, visibility: float) -> list[float]:
    """x, y and visibility on the output."""
    if visibility <= 0 or row[0] >= row[2] or row[1] >= row[3]:
        return [0.0, 0.0, 0.0]
    found = [place(row, 0, x), place(row, 1, y)]
    for axis, value in enumerate(found):
        begin = row[10 + axis]
        if row[14 + axis]:
            begin = row[8 + axis] - row[10 + axis] - row[12 + axis]
        if not begin <= value < begin + row[12 + axis]:
            return [0.0, 0.0, 0.0]
    return [*found, visibility]
