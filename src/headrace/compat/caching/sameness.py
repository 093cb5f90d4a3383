"""Whether a sample is the same each time: looked at when a cache is opened, and when a sample is made for keeping."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

from headrace.compat.caching.encoding import encode_sample
from headrace.compat.random_states import global_states, moved_sources
from headrace.errors import UsageError

PROBES = 4
"""Samples that are made, twice each, when a cache is opened."""
LOOKS, LOOK_EVERY = 64, 16
"""Of the samples that a process makes, those at which the global sources are looked at: the first, and then one of so
many. A look takes 60 µs, 1 to 5 % of decoding a picture (benchmarks/cached_dataset.py)."""
_RANDOM_NAMES = ("Random", "ColorJitter", "AutoAugment", "TrivialAugment", "AugMix", "GaussianBlur", "GaussNoise")
"""How names of transforms begin that draw something."""

Load = Callable[[int], Any]


class Maker:
    """Makes samples for keeping. `dataset` is asked for its transforms where a message needs them."""

    def __init__(self, dataset: Any, load: Load) -> None:
        self._dataset = dataset
        self._load = load
        self._made = 0

    def make(self, index: int) -> bytes:
        """The sample, encoded. Raises UsageError if it is seen to draw from a global random source or cannot be kept,
        and whatever `load` raises.

        In other threads than the main one nobody can tell who draws, so there only the encoding is checked.
        """
        before = global_states() if self._is_looked_at() else None
        sample = self._load(index)
        moved = [] if before is None else moved_sources(before)
        if moved:
            raise UsageError(
                f"cached: sample {index:,}: expected a sample that is the same each time, got one that draws from "
                f"{' and '.join(moved)}: what is random would be kept. {self._how_to_cut()}"
            )
        return encode_sample(sample, index)

    def _is_looked_at(self) -> bool:
        self._made += 1
        looked_at = self._made <= LOOKS or self._made % LOOK_EVERY == 0
        return looked_at and threading.current_thread() is threading.main_thread()

    def probe(self, length: int) -> list[bytes]:
        """Some samples, the same ones each time, encoded. Raises UsageError also for one that is another one when it
        is made again, as with a random generator of the dataset's own."""
        return [self._made_twice(index) for index in probed(length)]

    def _made_twice(self, index: int) -> bytes:
        first = self.make(index)
        if first != self.make(index):
            raise UsageError(
                f"cached: sample {index:,}: expected a sample that is the same each time, got another one when it was "
                f"made again: what is random would be kept. {self._how_to_cut()}"
            )
        return first

    def _how_to_cut(self) -> str:
        first = first_random(self._dataset)
        cut = "before the first random step" if first is None else f"before {first}"
        return f"Give load= what is done {cut}, and augment= all from there on"


def probed(length: int) -> list[int]:
    """First, last, and two between."""
    if length <= PROBES:
        return list(range(length))
    between = random.Random(length).sample(range(1, length - 1), PROBES - 2)
    return sorted({0, length - 1, *between})


def first_random(dataset: Any) -> str | None:
    """The first transform of `dataset.transform`, or `.transforms`, that is called as random ones are."""
    for attribute in ("transform", "transforms"):
        found = _first_of(getattr(dataset, attribute, None))
        if found is not None:
            return f"{found} of its {attribute}"
    return None


def _first_of(transform: Any) -> str | None:
    if transform is None:
        return None
    name = type(transform).__name__
    if name.startswith(_RANDOM_NAMES):
        return name
    inner = getattr(transform, "transforms", None)
    inner = inner if isinstance(inner, list | tuple) else [getattr(transform, "transform", None)]
    return next((found for one in inner if (found := _first_of(one)) is not None), None)
