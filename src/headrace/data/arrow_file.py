"""An Arrow file on disk, and where in it the values of its binary columns lie."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from ..errors import DatasetError, ReadError
from .columns import ABSENT

Ints = npt.NDArray[np.int64]


class Ranges(NamedTuple):
    """An entry a value: bytes of the file."""

    offset: Ints
    length: Ints
    """`ABSENT` where the value is null."""

    @classmethod
    def join(cls, parts: Sequence[Ranges]) -> Ranges:
        return cls(np.concatenate([part.offset for part in parts]), np.concatenate([part.length for part in parts]))


class ArrowFile:
    """A file in Arrow's stream format, memory-mapped: its batches' buffers are ranges of the file.

    Anyone may have written it, and pyarrow follows an offset wherever it leads: all of them are checked first.
    """

    def __init__(self, path: str) -> None:
        """Raises ReadError, or DatasetError for a file that is none, is cut short or damaged."""
        self.path = path
        try:
            with pa.memory_map(os.fsencode(path)) as mapped:
                self._bytes = mapped.read_buffer()
            reader = pa.ipc.open_stream(self._bytes)
            self.schema: pa.Schema = reader.schema
            self.names: list[str] = self.schema.names
            self.batches: list[pa.RecordBatch] = list(reader)
            for batch in self.batches:
                batch.validate(full=True)  # looks at the offsets of binary columns, not at their bytes
        except OSError as error:
            # Also what pyarrow raises where bytes are missing, then without a number.
            raise self._damaged(error) if error.errno is None else self._unreadable(error) from error
        except (pa.ArrowException, UnicodeDecodeError) as error:  # of what it holds, or of its columns' names
            raise self._damaged(error) from error

    def __len__(self) -> int:
        return sum(batch.num_rows for batch in self.batches)

    def ranges(self, column: str) -> Ranges:
        """Where the values of a binary column, or the `bytes` of a column of images, lie in the file.

        Raises DatasetError where they do not, since the file is compressed.
        """
        # One of no rows need not have offsets.
        return Ranges.join([_empty(), *(self._ranges(array) for array in self._binary(column) if len(array))])

    def names_files(self, column: str) -> bool:
        """Whether a column of images holds the path of any, beside its bytes or instead of them."""
        kind = self.schema.field(column).type
        at = kind.get_field_index("path") if types.is_struct(kind) else -1
        return at >= 0 and any(batch.column(column).field(at).null_count < len(batch) for batch in self.batches)

    def _binary(self, column: str) -> Iterator[pa.Array]:
        for batch in self.batches:
            array = batch.column(column)
            if types.is_struct(array.type):
                # Flattened, a child is also null where its parent is.
                array = array.flatten()[array.type.get_field_index("bytes")]
            yield array

    def _ranges(self, array: pa.Array) -> Ranges:
        wide = types.is_large_binary(array.type)
        _, offsets, data = array.buffers()
        bounds = np.frombuffer(offsets, np.int64 if wide else np.int32)[array.offset : array.offset + len(array) + 1]
        length = np.diff(bounds).astype(np.int64)
        begin = self._begin(data, int(bounds[-1]))
        if array.null_count:
            length[np.asarray(array.is_null())] = ABSENT
        return Ranges(bounds[:-1].astype(np.int64) + begin, length)

    def _begin(self, data: pa.Buffer | None, used: int) -> int:
        """The buffer's first byte in the file; 0 where no value has any."""
        if data is None or not used:
            return 0
        begin: int = data.address - self._bytes.address
        if not 0 <= begin <= self._bytes.size - used:
            raise DatasetError(
                f"{self.path}: expected plain columns of bytes, got compressed ones, which cannot be read in place. "
                f"Save the dataset without compression (datasets' save_to_disk does)"
            )
        return begin

    def _damaged(self, error: Exception) -> DatasetError:
        why = " ".join(str(error).split())
        return DatasetError(
            f"{self.path}: expected a file in Arrow's stream format, got otherwise: {why}. Save the dataset again"
        )

    def _unreadable(self, error: OSError) -> ReadError:
        return ReadError(f"{self.path}: could not be read: {error.strerror}. Check its permissions and the disk")


def common_schema(files: Sequence[ArrowFile]) -> pa.Schema:
    """The columns that each of the files (one at least) has.

    Raises DatasetError where they differ, or two have one name.
    """
    first, *others = files
    for file in others:
        if not file.schema.equals(first.schema):
            raise DatasetError(f"{file.path}: expected the columns of {first.path}, got others. Save the dataset again")
    for name, columns in Counter(first.schema.names).items():
        if columns > 1:
            raise DatasetError(
                f"{first.path}: expected column names that differ, got {name!r} {columns} times. Rename the columns "
                f"and save the dataset again"
            )
    return first.schema


def is_bytes(type: pa.DataType) -> bool:
    """Whether `ranges` has an answer: binary, or Hugging Face's image, a struct with `bytes`."""
    if types.is_struct(type):
        at = type.get_field_index("bytes")
        return at >= 0 and not types.is_struct(type.field(at).type) and is_bytes(type.field(at).type)
    return bool(types.is_binary(type) or types.is_large_binary(type))


def _empty() -> Ranges:
    return Ranges(np.empty(0, np.int64), np.empty(0, np.int64))
