"""Which windows of which photographs become the files of a data set: pure and seeded."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cut:
    """One file to be: a window (left, top, right, bottom) of a photograph, resized to `size` (width, height)."""

    photograph: int
    size: tuple[int, int]
    window: tuple[int, int, int, int]


def draw_cuts(sizes: Sequence[tuple[int, int]], count: int, *, seed: int) -> list[Cut]:
    """Draw `count` cuts from photographs of these sizes, as ImageNet's files are: 500×375 mostly, a tenth twice that.

    The window is the size times a zoom of 1 to 2, so that the files hold a photograph's detail and not an
    enlargement; where a photograph is smaller than that, the window is cut to it, side by side.
    """
    rng = random.Random(seed)
    return [_draw(rng, sizes) for _ in range(count)]


def _draw(rng: random.Random, sizes: Sequence[tuple[int, int]]) -> Cut:
    photograph = rng.choice(range(len(sizes)))
    wide = rng.random() < 0.75
    width, height = (500, rng.choice([333, 375, 375, 400])) if wide else (rng.choice([333, 375]), 500)
    if rng.random() < 0.1:
        width, height = width * 2, height * 2
    zoom = rng.uniform(1.0, 2.0)
    whole_width, whole_height = sizes[photograph]
    window_width, window_height = min(whole_width, int(width * zoom)), min(whole_height, int(height * zoom))
    left, top = rng.randint(0, whole_width - window_width), rng.randint(0, whole_height - window_height)
    return Cut(photograph, (width, height), (left, top, left + window_width, top + window_height))
