"""Arrays from a file that anyone may have written, checked for what their reader relies on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.data.storage.safetensors import Arrays, InvalidFileError, Mapped
from headrace.data.storage.strings import StoredArray, StoredStrings
from headrace.data.strings import StringColumn, Strings

_BLOCK = 1 << 14


def array(arrays: Arrays, name: str, dtype: type[np.generic], count: int | None = None) -> npt.NDArray[Any]:
    """Return the array of that name, of `dtype` and, where given, of `count` entries, all of which fit their checksums.

    Raises InvalidFileError.
    """
    found = _expected(arrays, name, (dtype,), count)
    if isinstance(arrays, Mapped):
        arrays.check(name)
    return found


def many_numbers(
    arrays: Arrays, name: str, dtypes: Sequence[type[np.generic]], count: int | None = None
) -> npt.NDArray[Any] | StoredArray:
    """Return an array of one of `dtypes` as `array` does, for more than opening should look at: out of a file it is
    checked as it is read, but for its ends. Raises InvalidFileError."""
    found = _expected(arrays, name, dtypes, count)
    if not isinstance(arrays, Mapped):
        return found
    if len(found):
        arrays.check_ends(name)
    return found if arrays.checks is None else StoredArray(found, arrays.file, at=arrays.at[name], checks=arrays.checks)


def _expected(arrays: Arrays, name: str, dtypes: Sequence[type[np.generic]], count: int | None) -> npt.NDArray[Any]:
    found = arrays.get(name)
    if found is None or found.dtype not in dtypes or (count is not None and len(found) != count):
        raise InvalidFileError(f"{name} is missing, or of another type or length")
    return found


def strings(arrays: Arrays, name: str, count: int | None = None) -> StringColumn:
    """`name`.blob and `name`.offsets. Raises InvalidFileError unless these divide that."""
    blob = array(arrays, f"{name}.blob", np.uint8)
    offsets = array(arrays, f"{name}.offsets", np.uint64, None if count is None else count + 1)
    if not divides(offsets, len(blob)):
        raise InvalidFileError(f"{name}.offsets do not divide {name}.blob")
    return StringColumn(blob, offsets)


def many_strings(arrays: Arrays, name: str, count: int | None = None) -> Strings:
    """As `strings`, for more than opening should look at, or memory hold: out of a file they are checked as they are
    read. Raises InvalidFileError."""
    if not isinstance(arrays, Mapped):
        return strings(arrays, name, count)
    blob = _expected(arrays, f"{name}.blob", (np.uint8,), None)
    offsets = many_numbers(arrays, f"{name}.offsets", (np.uint64,), None if count is None else count + 1)
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(blob):
        raise InvalidFileError(f"{name}.offsets do not divide {name}.blob")
    return StoredStrings(
        arrays.file,
        blob_at=arrays.at[f"{name}.blob"],
        blob_bytes=len(blob),
        offsets_at=arrays.at[f"{name}.offsets"],
        count=len(offsets) - 1,
        checks=arrays.checks,
    )


def indices(
    arrays: Arrays,
    name: str,
    size: int,
    *,
    count: int | None = None,
    dtype: type[np.signedinteger[Any]] = np.int64,
    first: int = 0,
) -> npt.NDArray[Any]:
    """Positions from `first` to `size` - 1. Raises InvalidFileError."""
    found = array(arrays, name, dtype, count)
    if len(found) and not (found.min() >= first and found.max() < size):
        raise InvalidFileError(f"{name} is out of range")
    return found


def divides(bounds: npt.NDArray[Any], size: int, *, empty: bool = True) -> bool:
    """Whether `bounds` rise from 0 to `size`, and so divide it: into parts of which none is empty, if `empty` is not
    allowed."""
    if not len(bounds) or bounds[0] != 0 or bounds[-1] != size:
        return False
    rises = np.less_equal if empty else np.less
    return all(
        bool(rises(bounds[part], bounds[part.start + 1 : part.stop + 1]).all()) for part in _blocks(len(bounds) - 1)
    )


def ranges_lie_in(offset: npt.NDArray[np.int64], length: npt.NDArray[np.int64], *, first: int, end: int) -> bool:
    """Whether all ranges of bytes lie in [first, end)."""
    return all(
        bool(ranges_fit(offset[part], length[part], first=first, end=end).all()) for part in _blocks(len(offset))
    )


def ranges_fit(
    offset: npt.NDArray[np.int64], length: npt.NDArray[np.int64], *, first: int, end: int
) -> npt.NDArray[np.bool_]:
    """For each range of bytes, whether it lies in [first, end)."""
    # Compared by subtraction: a sum of two large numbers could wrap around.
    fits: npt.NDArray[np.bool_] = (length >= 0) & (length <= end) & (offset >= first) & (offset <= end - length)
    return fits


def _blocks(size: int) -> Iterator[slice]:
    """Parts small enough for what is computed of them to stay in the processor's cache, and cost no memory."""
    for start in range(0, size, _BLOCK):
        yield slice(start, min(start + _BLOCK, size))
