"""Byte columns in stores with values that can only be located inside pages after reading them.

Parquet records the ranges of pages, but not of the values in them. So a batch requests pages, and locates its values
there. Values in uncompressed pages are remembered: the next access reads their exact range.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.data.byte_columns import RowFiles
from headrace.data.columns import ByteColumn, ColumnPart
from headrace.data.location import ColumnFiles, HeldParts, Location
from headrace.data.manifest.parquet_pages import CODECS, InvalidPageError, UnpackedValues, unpack_pages
from headrace.data.remote.remote_file import ObjectPath
from headrace.data.storage import safetensors
from headrace.data.storage.open_file import FilePath, ReadableFile, read_exactly
from headrace.data.storage.safetensors import ArrayContent, Arrays, InvalidFileError
from headrace.data.storage.sidecar import Sidecar, identify_closely, identify_rows, open_sidecar
from headrace.data.storage.strings import Ints
from headrace.errors import DatasetError

_FORMAT = "headrace pages 1"
"""Raise the number whenever the meaning of an index changes: old indices are rebuilt."""
_LEAST_BYTES = 1 << 20
"""Smaller files are read completely at each opening."""
_OPENED_AT_ONCE = 16
_ALIKE = 0.9
"""Share of units with the same number of rows for blocks to follow units; a file's last unit may differ."""
_TYPES: tuple[type[np.generic], ...] = (np.int64, np.int64, np.int64, np.int32, np.int32, np.uint64)
_TO_DECODE = "decode"
"""Outline of an index of a column with values that must be decoded."""
_EXACT = -1
"""Replacement for a unit's number if the value's exact range is known."""


class PageUnits(NamedTuple):
    """Pages that are read together, of one column in one or more files, with an entry per unit.

    A unit is a page that can be read independently, or a column chunk with its dictionary.
    """

    start: Ints
    """First byte in the file."""
    stop: Ints
    rows: Ints
    codec: npt.NDArray[np.int32]
    """Index into `CODECS`."""
    most_level: npt.NDArray[np.int32]
    """Definition level of a non-null value."""
    sample: npt.NDArray[np.uint64]
    """Hash of some bytes of the unit, for a few units; 0 for others."""

    @classmethod
    def join(cls, parts: list[PageUnits]) -> PageUnits:
        return cls(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    @property
    def mean_bytes(self) -> int:
        """Mean bytes read for one value, over all rows."""
        return int(((self.stop - self.start) * self.rows).sum() // max(1, self.rows.sum()))


class _SeenValues:
    """Ranges of values in pages that this process has read. Memory is allocated lazily."""

    def __init__(self, rows: int, units: int) -> None:
        self.offset, self.length = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        self.units = np.zeros(units, bool)


@dataclass(frozen=True, eq=False, repr=False)
class PackedColumn(ByteColumn):
    """Column of values inside pages of objects."""

    names_content: ClassVar[bool] = True

    files: ColumnFiles
    path_id: npt.NDArray[np.int32]
    """File of each unit."""
    units: PageUnits

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedColumn, (self.files, self.path_id, self.units)

    @cached_property
    def first(self) -> Ints:
        """First row of each unit, followed by the total number of rows."""
        return np.concatenate([[0], np.cumsum(self.units.rows)]).astype(np.int64)

    @cached_property
    def seen(self) -> _SeenValues:
        """Values with known ranges."""
        return _SeenValues(int(self.first[-1]), len(self.units.start))

    @property
    def unit_bytes(self) -> int:
        return self.units.mean_bytes

    @cached_property
    def unit_rows(self) -> int | None:
        rows, units = np.unique(self.units.rows, return_counts=True)
        often = int(units.argmax())
        return int(rows[often]) if units[often] >= _ALIKE * units.sum() else None

    def stored_bytes(self, ids: Ints) -> Ints:
        """Return mean value sizes of the pages, whether or not exact sizes are known."""
        mean = (self.units.stop - self.units.start) // np.maximum(1, self.units.rows)
        return mean[np.searchsorted(self.first, ids, "right") - 1]

    def locate(self, ids: Ints) -> Location:
        """Return the location of a batch: exact ranges if known, else pages, with their mean value size as length."""
        unit = np.searchsorted(self.first, ids, "right") - 1
        start, stop, length = self.units.start[unit], self.units.stop[unit], self.stored_bytes(ids)
        offset = start
        path_id = self.path_id[unit].astype(np.int64)
        exact = self.seen.units[unit]
        if exact.any():
            offset = np.where(exact, self.seen.offset[ids], offset)
            length = np.where(exact, self.seen.length[ids], length)
            start = np.where(exact, offset, start)
            stop = np.where(exact, offset + np.maximum(length, 0), stop)
        unit = np.where(exact, _EXACT, unit)
        return Location(path_id, offset, length, None, packed=PackedRange(start, stop, ids, unit, self))

    def parts(self) -> Iterator[ColumnPart]:
        """Yield rows and bytes of units, and hashes of a few; hashing values would read all of them."""
        yield self.units.rows, "<i8"
        yield self.units.stop - self.units.start, "<i8"
        yield self.units.sample, "<u8"

    def unpack(self, number: int, data: Any, where: str) -> UnpackedValues:
        """Return the ranges of a unit's values in its bytes, and remember them if the pages are uncompressed.

        Raises DatasetError for damaged pages; `where` starts the message.
        """
        first, last = int(self.first[number]), int(self.first[number + 1])
        units = self.units
        try:
            found = unpack_pages(
                memoryview(data),
                rows=last - first,
                codec=CODECS[units.codec[number]],
                most_level=int(units.most_level[number]),
            )
        except InvalidPageError as error:
            raise DatasetError(
                f"{where}: expected pages of binary values from byte {int(units.start[number]):,} to "
                f"{int(units.stop[number]):,}, got otherwise: {error}. Check the file with pyarrow, and write it again"
            ) from error
        if found.data is None:
            self.seen.offset[first:last] = int(units.start[number]) + found.offset
            self.seen.length[first:last] = found.length
            self.seen.units[number] = True
        return found


@dataclass(frozen=True, eq=False)
class PackedRange:
    """Ranges of a batch's values, or of their units; the arrays have one entry per sample."""

    start: Ints
    """First byte to read."""
    stop: Ints
    row: Ints
    """Row in the column."""
    unit: Ints
    """Unit of the value; -1 if the range is the value's own."""
    column: PackedColumn

    def unpacked(self, at: Location, held: HeldParts) -> tuple[Location, HeldParts]:
        """Return the locations of values in held parts. Values without held parts are unchanged.

        Raises DatasetError for damaged pages.
        """
        assert at.offset is not None
        assert at.length is not None
        offset, length, part_of = at.offset.copy(), at.length.copy(), held.part_of.copy()
        data, first = list(held.data), list(held.first)
        added: dict[tuple[int, int], int] = {}
        for row in np.flatnonzero((self.unit != _EXACT) & (held.part_of >= 0)).tolist():
            number, part = int(self.unit[row]), int(held.part_of[row])
            known = held.unpacked[part]
            found = known.get(number)
            if found is None:
                begin = int(self.start[row]) - first[part]
                pages = memoryview(data[part])[begin : begin + int(self.stop[row] - self.start[row])]
                found = known[number] = self.column.unpack(number, pages, str(self._name(at, row)))
            place = int(self.row[row] - self.column.first[number])
            length[row] = found.length[place]
            offset[row] = int(found.offset[place])
            if found.data is None:
                offset[row] += int(self.start[row])
                continue
            if (part, number) not in added:
                added[part, number] = len(data)
                data.append(found.data)
                first.append(0)
            part_of[row] = added[part, number]
        return at._replace(offset=offset, length=length, packed=None), HeldParts(data, first, part_of, [])

    def read(self, file: ReadableFile, at: Location, known: dict[int, Any]) -> bytes | None:
        """Return the value of the one located sample; None for null.

        `known` maps unit numbers to the values unpacked so far; the call adds more. Raises as `unpacked` does, and
        ReadError.
        """
        start, size, number = int(self.start[0]), int(self.stop[0] - self.start[0]), int(self.unit[0])
        if number == _EXACT:
            return None if at.length is not None and at.length[0] < 0 else read_exactly(file, start, size)
        pages = b""
        found = known.get(number)
        if found is None:
            pages = read_exactly(file, start, size)
            found = known[number] = self.column.unpack(number, pages, str(file))
        place = int(self.row[0] - self.column.first[number])
        begin, length = int(found.offset[place]), int(found.length[place])
        if length < 0:
            return None
        if found.data is not None:
            return bytes(found.data[begin : begin + length])
        return pages[begin : begin + length] if pages else read_exactly(file, start + begin, length)

    def _name(self, at: Location, row: int) -> str:
        return self.column.path(at, row).decode("utf-8", "backslashreplace")


def open_packed_column(
    paths: Sequence[FilePath],
    names: Sequence[str],
    rows: Sequence[int],
    column: str,
    *,
    read: Callable[[FilePath, str], PageUnits | None],
    cache: str | None,
) -> PackedColumn | None:
    """Return a column of parquet files in stores, read page by page; None if its values must be decoded.

    `rows`: number of rows in each file. `read` returns the units of a file, if needed; None: its values must be
    decoded. Raises DatasetError, ReadError.
    """
    objects = [path for path in paths if isinstance(path, ObjectPath)]
    if len(objects) < len(paths) or all(path.open().size() < _LEAST_BYTES for path in objects):
        return None
    with ThreadPoolExecutor(_OPENED_AT_ONCE, thread_name_prefix="headrace-open") as pool:
        found = list(
            pool.map(lambda path, name: _open_units(path, column, partial(read, path, name), cache), objects, names)
        )
    units = [each for each in found if each is not None]
    if len(units) < len(found) or any(int(each.rows.sum()) != count for each, count in zip(units, rows, strict=True)):
        return None
    path_id = np.repeat(np.arange(len(units), dtype=np.int32), [len(each.start) for each in units])
    return PackedColumn(RowFiles.of(paths), path_id, PageUnits.join(units))


def _open_units(
    path: ObjectPath, column: str, read: Callable[[], PageUnits | None], cache: str | None
) -> PageUnits | None:
    def build(_: FilePath, __: str | None) -> tuple[dict[str, ArrayContent], str]:
        units = read()
        return ({}, _TO_DECODE) if units is None else (dict(zip(PageUnits._fields, units, strict=True)), "")

    variant = hashlib.blake2b(f"pages {column}".encode(), digest_size=4).hexdigest()
    sidecar = Sidecar(_FORMAT, build, _load, identify_closely, variant)
    return open_sidecar(sidecar, path, identify_rows(path), cache=cache)


def _load(arrays: Arrays, outline: str, file_bytes: int) -> PageUnits | None:
    if outline == _TO_DECODE:
        return None
    count = len(safetensors.checked_array(arrays, "start", np.int64))
    fields = zip(PageUnits._fields, _TYPES, strict=True)
    units = PageUnits(*(safetensors.checked_array(arrays, name, kind, count) for name, kind in fields))
    if not (
        safetensors.ranges_lie_in(units.start, units.stop - units.start, first=0, end=file_bytes)
        and ((units.rows > 0) & (units.codec >= 0) & (units.codec < len(CODECS))).all()
    ):
        raise InvalidFileError("pages lie beyond the file")
    return units
