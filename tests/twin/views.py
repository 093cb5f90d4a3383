"""The view of a sample, in plain Python floats, from the same program table that the core takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from twin.exact_math import exact_exp, exact_log
from twin.rng import Stream, below, uniform

Op = Sequence[float]


class ViewError(Exception):
    """The source cannot be cut so."""


@dataclass(frozen=True)
class Side:
    """One axis of the canvas, mirrored when `flipped`."""

    window: tuple[float, float]
    bounds: tuple[int, int]
    size: int
    start: int
    inner: int
    flipped: bool = False
    was_flipped: bool = False
    """At the last resize."""

    @property
    def flip(self) -> int:
        return self.flipped * (2 if self.was_flipped else 1)


def whole(source: int) -> Side:
    return Side((0.0, float(source)), (0, source), source, 0, source)


def pad(side: Side, before: int, after: int) -> Side:
    return replace(side, size=side.size + before + after, start=side.start + (after if side.flipped else before))


def crop(side: Side, start: int, size: int) -> Side:
    at = side.size - size - start if side.flipped else start
    first = max(at, side.start) - side.start
    last = min(at + size, side.start + side.inner) - side.start
    low, high = side.window
    if last <= first:
        return replace(side, window=(low, low), size=size, start=0, inner=0)

    def edge(offset: int) -> float:
        return (
            low
            if offset == 0
            else high
            if offset == side.inner
            else min(low + (high - low) * offset / side.inner, high)
        )

    window = edge(first), edge(last)
    bounds = side.bounds
    if high - low == side.inner:
        bounds = max(bounds[0], math.floor(window[0])), min(bounds[1], math.ceil(window[1]))
    return replace(side, window=window, bounds=bounds, size=size, start=first + side.start - at, inner=last - first)


def resize(side: Side, size: int) -> Side:
    if side.inner != side.size:
        raise ViewError("padded")
    return replace(side, size=size, inner=size, was_flipped=side.flipped)


def center(side: Side, size: int) -> Side:
    lack = max(0, size - side.size)
    side = pad(side, lack // 2, (lack + 1) // 2)
    return crop(side, round((side.size - size) / 2), size)


def resized_crop_box(width: int, height: int, op: Op, stream: Stream) -> tuple[int, int, int, int]:
    """left, top, width, height"""
    _, _, _, *scale_ratio = op[:7]
    scale, ratio = scale_ratio[:2], scale_ratio[2:]
    for attempt in range(10):
        first, second = stream.at(2 * attempt)
        target = float(width * height) * uniform(first, *scale)
        aspect = exact_exp(uniform(second, exact_log(ratio[0]), exact_log(ratio[1])))
        w, h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            down, across = stream.at(2 * attempt + 1)
            top = below(down, height - h + 1)
            return below(across, width - w + 1), top, w, h
    w, h = width, height
    if width / height < ratio[0]:
        h = max(1, round(width / ratio[0]))
    elif width / height > ratio[1]:
        w = max(1, round(height * ratio[1]))
    return (width - w) // 2, (height - h) // 2, w, h


def short_side_size(width: int, height: int, size: int, max_size: int) -> tuple[int, int]:
    short, long = sorted((width, height))
    new_short, new_long = size, int(size * long / short)
    if max_size and new_long > max_size:
        new_short, new_long = int(max_size * new_short / new_long), max_size
    if new_short < 1 or new_long > 1 << 30:
        raise ViewError("no such size")
    return (new_short, new_long) if width <= height else (new_long, new_short)


def fixed_crop(x: Side, y: Side, op: Op, copy: int) -> tuple[Side, Side]:
    """FiveCrop, TenCrop and Tiles."""
    kind, height, width = (int(value) for value in op[:3])
    rows, columns = (int(op[3]), int(op[4])) if kind == 11 else (2, 2)
    if kind == 10 and copy >= 5:
        copy -= 5
        x, y = (x, replace(y, flipped=not y.flipped)) if op[3] else (replace(x, flipped=not x.flipped), y)
    if width > x.size or height > y.size or copy > (rows * columns if kind != 11 else rows * columns - 1):
        raise ViewError("too small, or no such copy")

    def offset(room: int, number: int, count: int) -> int:
        middle = count == 1 or (kind != 11 and copy == 4)
        return round(room / 2) if middle else round(room * number / (count - 1))

    left, top = offset(x.size - width, copy % columns, columns), offset(y.size - height, copy // columns, rows)
    return crop(x, left, width), crop(y, top, height)


def step(x: Side, y: Side, op: Op, stream: Stream, copy: int) -> tuple[Side, Side]:
    kind, p = int(op[0]), [int(value) for value in op[1:]]
    if kind == 1:
        left, top, w, h = resized_crop_box(x.size, y.size, op, stream)
        return resize(crop(x, left, w), p[1]), resize(crop(y, top, h), p[0])
    if kind == 2:
        width, height = short_side_size(x.size, y.size, p[0], p[1])
        return resize(x, width), resize(y, height)
    if kind == 3:
        return resize(x, p[1]), resize(y, p[0])
    if kind == 4:
        return center(x, p[1]), center(y, p[0])
    if kind == 5:
        return random_crop(x, y, p, stream)
    if kind == 6:
        scale_by_width = p[1] * y.size <= p[0] * x.size
        width = p[1] if scale_by_width else min(p[1], max(1, round(x.size * p[0] / y.size)))
        height = min(p[0], max(1, round(y.size * p[1] / x.size))) if scale_by_width else p[0]
        return center(resize(x, width), p[1]), center(resize(y, height), p[0])
    if kind in (9, 10, 11):
        return fixed_crop(x, y, op, copy)
    if uniform(stream.at(0)[0], 0, 1) < op[1]:
        return (replace(x, flipped=not x.flipped), y) if kind == 7 else (x, replace(y, flipped=not y.flipped))
    return x, y


def random_crop(x: Side, y: Side, p: Sequence[int], stream: Stream) -> tuple[Side, Side]:
    height, width, left, top, right, bottom, if_needed = p[:7]
    x, y = pad(x, left, right), pad(y, top, bottom)
    if if_needed:
        lack_x, lack_y = max(0, width - x.size), max(0, height - y.size)
        x, y = pad(x, lack_x, lack_x), pad(y, lack_y, lack_y)
    if width > x.size or height > y.size:
        raise ViewError("too small")
    down, across = stream.at(0)
    return crop(x, below(across, x.size - width + 1), width), crop(y, below(down, y.size - height + 1), height)


def drawn_quarters(probabilities: Sequence[float], draw: float) -> int:
    possible = [quarters for quarters in range(4) if probabilities[quarters] > 0]
    return next((each for each in possible if draw < sum(probabilities[: each + 1])), possible[-1])


def sample_view(
    program: Sequence[Op], *, key: int, sample: int, number: int, dataset: int, width: int, height: int, copy: int = 0
) -> list[float]:
    """The 17 columns of `ViewColumn`."""
    x, y, transposed = whole(width), whole(height), False
    for stage, op in enumerate(program):
        stream = Stream(key, sample, number, dataset, stage)
        if op[0] != 12:
            x, y = step(x, y, op, stream, copy)
            continue
        quarters = drawn_quarters(op[1:5], uniform(stream.at(0)[0], 0, 1))
        for _ in range(quarters):  # the rows, from the right column to the left
            x, y, transposed = y, replace(x, flipped=not x.flipped), not transposed
    if x.size * y.size > 178_956_970:
        raise ViewError("too large")
    x1, y1 = x.window[1], y.window[1]
    inner = [x.start, y.start, x.inner, y.inner]
    if 0 in inner[2:]:
        x1, y1, inner = x.window[0], y.window[0], [0, 0, 0, 0]
    bounds = [x.bounds[0], y.bounds[0], x.bounds[1], y.bounds[1]]
    row = [x.window[0], y.window[0], x1, y1, *bounds, x.size, y.size, *inner, x.flip, y.flip, transposed]
    return [float(value) for value in row]
