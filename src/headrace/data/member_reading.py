"""Reads members of bytes of all samples, in native threads, some at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace.data.dataset import Dataset
from headrace.data.files import native_paths
from headrace.data.strings import StringColumn

Ints = npt.NDArray[np.int64]

_AHEAD = 2
"""Blocks under way, so that there is something to read while the texts of one are encoded."""
_CORRUPT, _LIMIT = 2, 3  # core/common/fault.hpp
_NO_OPS = np.zeros((0, 10))  # a view of no operations (core/view/program.hpp)


def read_members(
    dataset: Dataset, column: str, *, block: int, threads: int, most_bytes: int
) -> Iterator[tuple[Ints, list[bytes | None]]]:
    """Positions and what their members hold; None where a sample has none, one of more bytes, or one that is damaged.

    Where reading itself fails, or the data has changed, raises what `Dataset.read` raises.
    """
    engine = _core.Engine(threads, limits=_core.Limits(max_file_bytes=most_bytes))
    try:
        for positions, job in _jobs(dataset, column, block, engine):
            job.wait()
            found: list[bytes | None] = list(job.raw(0))
            for row, _, code, _, _ in job.failures():
                position = int(positions[row])
                found[row] = None if code in (_CORRUPT, _LIMIT) else dataset.read(column, position)
            yield positions, found
    finally:
        engine.cancel()
        engine.close()


def _jobs(dataset: Dataset, column: str, block: int, engine: _core.Engine) -> Iterator[tuple[Ints, _core.Job]]:
    files = dataset.files(column)
    paths = native_paths(files) if isinstance(files.names, StringColumn) else None
    under_way: deque[tuple[Ints, _core.Job]] = deque()
    for start in range(0, len(dataset), block):
        positions = np.arange(start, min(start + block, len(dataset)))
        at = dataset.locate(column, positions)._asdict()
        own = at.pop("files")
        job = _core.Job(np.zeros(len(positions), np.int64), np.zeros(len(positions), np.uint32), key=0, program=_NO_OPS)
        job.add_raw(paths=paths if own is None else native_paths(own), **at)
        engine.submit(job)
        under_way.append((positions, job))
        if len(under_way) > _AHEAD:
            yield under_way.popleft()
    yield from under_way
