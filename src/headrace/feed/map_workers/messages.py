"""What the parent and a worker say to each other. Pixels are not in it: it says where they lie."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.loader.batch_values import Layout
from headrace.loader.map_workers.messages import SentField


@dataclass(frozen=True)
class Place:
    """Memory for one field of a batch to be: rows of one layout, from `offset` of the shared file on."""

    layout: Layout
    offset: int
    bytes: int


@dataclass(frozen=True)
class Work:
    """A batch to map. The first message after a worker's start, and each after its `Done`."""

    number: int
    """Of the batch in the pass."""
    count: int
    """Rows of the batch."""
    rows: tuple[int, ...] | None
    """Those that are this worker's, of which alone `fields` has values; None where whoever is free takes the next."""
    key: int
    draw_ids: NDArray[np.int64]
    passes: NDArray[np.uint32]
    fields: dict[str, SentField]
    places: dict[str, Place]
    """Where results go, as far as it is known."""


@dataclass(frozen=True)
class Places:
    """The answer to `NoPlace`."""

    places: dict[str, Place]


@dataclass(frozen=True)
class Begun:
    """The worker begins this row. Said where there is no shared memory to say it in."""

    number: int
    row: int


@dataclass(frozen=True)
class NoPlace:
    """Results of these layouts have no place in the batch yet; the worker waits for `Places`."""

    number: int
    layouts: dict[str, Layout]


@dataclass(frozen=True)
class Failure:
    """An exception of the user's, or of what it returned: itself, pickled, what it says, and its traceback as text."""

    row: int
    error: bytes
    words: str
    traceback: str


@dataclass(frozen=True)
class Done:
    """This worker has done its part of a batch, or will do no more of it."""

    number: int
    count: int
    """Rows that were mapped."""
    rows: bytes
    """A pickled dict of what map returned for each of them, less what lies in shared memory."""
    failure: Failure | None
    busy_s: float
    kept: bool
    """Whether the user's code still refers to what it was given: the memory must not be used again."""
    let_go: tuple[int, ...] = field(default=())
    """Earlier batches that were kept, and are no longer."""


ToWorker: TypeAlias = Work | Places
FromWorker: TypeAlias = Begun | NoPlace | Done
