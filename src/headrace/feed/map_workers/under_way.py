"""One batch that map workers are at, as the parent has it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.feed.decoded import Decoded
from headrace.feed.map_workers import pickling
from headrace.feed.map_workers.messages import Done, Failure, Place
from headrace.loader.batch_memory import SharedBlocks
from headrace.loader.batch_values import Layout

Shapes: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class Mapped:
    """What map made of a batch: each row's values, and whole fields where they lie in place."""

    rows: list[Any]
    placed: dict[str, Any]


@dataclass
class UnderWay:
    """`waiting` are the workers that have not done their part; `keep` holds the memory that they read."""

    decoded: Decoded
    waiting: set[int]
    keep: list[Any] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    _rows: dict[int, Any] = field(default_factory=dict)
    _blocks: dict[str, tuple[Place, NDArray[np.uint8]]] = field(default_factory=dict)

    @property
    def shapes(self) -> Shapes:
        """Of a row of each field. Where they are another batch's, what map makes of them will be, too."""
        return tuple(tuple(getattr(value, "shape", ()))[1:] for value in self.decoded.batch.values())

    @property
    def blocks(self) -> int:
        """Blocks of shared memory that it has, before and after."""
        return len(self.keep) + len(self._blocks)

    @property
    def places(self) -> dict[str, Place]:
        return {name: place for name, (place, _) in self._blocks.items()}

    def add_places(self, layouts: dict[str, Layout], memory: SharedBlocks) -> None:
        """Memory for fields that have none yet: the first layout that is asked for is the field's."""
        for name, layout in layouts.items():
            if name not in self._blocks:
                block = memory.acquire(layout.row_bytes * len(self.decoded))
                offset = memory.offset_of(block)
                assert offset is not None, "a block begins where it begins"
                self._blocks[name] = Place(layout, offset, block.nbytes), block

    def add(self, worker: int, done: Done) -> None:
        """Raises UsageError for values that cannot be made again here."""
        self.waiting.discard(worker)
        if done.rows:
            self._rows.update(pickling.loads_rows(done.rows))
        if done.failure is not None:
            self.failures.append(done.failure)

    def mapped(self) -> Mapped:
        """Once nobody is waited for. Raises the exception of the first row that failed: every row before it was
        mapped, so it is the same however many workers there are."""
        if self.failures:
            self._raise(min(self.failures, key=lambda failure: failure.row))
        count = len(self.decoded)
        placed = {name: place.layout.batch(block, count).restore() for name, (place, block) in self._blocks.items()}
        return Mapped([self._rows[row] for row in range(count)], placed)

    def _raise(self, failure: Failure) -> NoReturn:
        error = pickling.raised(failure)
        error.add_note(f"in map=, {self.decoded.name(failure.row)}")
        error.add_note(f"In the map worker:\n{failure.traceback}")
        raise error
