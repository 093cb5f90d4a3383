"""What a manifest is to whoever builds columns from it, whatever its format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 1 << 16
BATCH_BYTES = 4 << 20
MAX_COLUMNS = 1_000

T = TypeVar("T")


class SourceRows(NamedTuple):
    """How many rows one file has."""

    rows: int
    first_line: int | None
    """The line, from 1, of the first row, if row after row takes one line."""


class ManifestSource(Protocol):
    """Rows of a manifest in batches, each column of one type from the first row to the last.

    Types are string, int64, float32, float64, bool, and lists of string, int64, float32 and float64. A null is NaN in
    a column of floats and an empty text in one of strings; other columns have none.
    """

    def schema(self) -> pa.Schema:
        """Looks through all of the manifest where the format does not say. Raises DatasetError, UsageError."""
        ...

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Of that schema, from the first row on. Raises DatasetError, ReadError."""
        ...

    @property
    def files(self) -> Sequence[SourceRows]:
        """Of each file that the rows come from, in order; known once `batches` has ended."""
        ...

    @property
    def byte_columns(self) -> Sequence[tuple[int, str]]:
        """Columns of bytes, which are none of `schema`, each with its place among all columns."""
        ...

    @property
    def classes(self) -> Mapping[str, tuple[str, ...]]:
        """Names of classes that columns of numbers hold, by column."""
        ...

    @property
    def skipped(self) -> Mapping[str, int]:
        """What is taken for no column, by reason."""
        ...


class TextOnly:
    """The part of a `ManifestSource` that a text has nothing of."""

    byte_columns: Sequence[tuple[int, str]] = ()
    classes: Mapping[str, tuple[str, ...]] = {}  # read alone
    skipped: Mapping[str, int] = {}


def batched(rows: Iterable[tuple[T, int]]) -> Iterator[list[T]]:
    """Rows, each given with its bytes in the file, so many at a time as memory should hold."""
    batch: list[T] = []
    total = 0
    for row, size in rows:
        batch.append(row)
        total += size
        if len(batch) == BATCH_ROWS or total >= BATCH_BYTES:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch
