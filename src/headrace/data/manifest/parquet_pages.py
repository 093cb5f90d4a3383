"""Locate binary values inside the pages of a parquet column chunk, using only the bytes of the pages. Pure.

Parquet's format: https://parquet.apache.org/docs/file-format/. pyarrow exposes neither page headers nor the index of
pages; both use Thrift's compact protocol.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from headrace.data.location import ABSENT
from headrace.data.storage.strings import Ints

PLAIN_ENCODINGS = frozenset({"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"})
"""Encodings of values, dictionaries and levels that `unpack_pages` supports."""
CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "BROTLI", "ZSTD")
"""Compressions that `unpack_pages` supports. Cached indices depend on their order."""
_PLAIN, _DICTIONARY = 0, (2, 8)
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
_ABOUT = {_DATA_PAGE: 5, _DICTIONARY_PAGE: 7, _DATA_PAGE_V2: 8}
"""Field of a page header for each kind of page with values."""
_DEEPEST = 16
"""Maximum nesting of structs and lists in a header."""
_MOST_BYTES = 1 << 31
"""Maximum size of a page in Parquet."""
_ANYWHERE = 1 << 62
_WIDEST = 32
"""Maximum bit width of a level or an index."""


class InvalidPageError(ValueError):
    """Bytes that are not pages of binary values."""


class UnpackedValues(NamedTuple):
    """Values of some pages, with an entry per row."""

    data: memoryview | None
    """Memory that offsets refer to; None: the given pages."""
    offset: Ints
    length: Ints
    """`ABSENT` for a null value."""


class Cursor:
    """Position in untrusted bytes of Parquet. Methods raise InvalidPageError."""

    def __init__(self, data: memoryview) -> None:
        self.data, self.at = data, 0

    @property
    def left(self) -> int:
        """Number of bytes after the position."""
        return len(self.data) - self.at

    def take(self, size: int) -> memoryview:
        if size > self.left:
            raise InvalidPageError(f"{size:,} bytes are announced, and {self.left:,} are there")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self) -> int:
        """Return an unsigned number of at most 64 bits."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise InvalidPageError("a number has no end")

    def thrift_struct(self, depth: int = 0) -> dict[int, Any]:
        """Return the fields of a Thrift struct by id, with nested structs as dicts."""
        fields: dict[int, Any] = {}
        field = 0
        while head := self.take(1)[0]:
            field = field + (head >> 4) if head >> 4 else self._signed()
            kind = head & 15
            fields[field] = kind == 1 if kind in (1, 2) else self._value(kind, depth + 1)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if depth > _DEEPEST:
            raise InvalidPageError("a header is nested too deeply")
        if kind in (1, 2, 3):  # a byte, or a boolean in a list
            return self.take(1)[0]
        if kind in (4, 5, 6):
            return self._signed()
        if kind in (7, 8):
            return self.take(8 if kind == 7 else self.number())
        if kind in (9, 10):
            head = self.take(1)[0]
            size = head >> 4 if head >> 4 < 15 else self.number()
            return [self._value(head & 15, depth + 1) for _ in range(size)]  # each takes a byte at least
        if kind == 12:
            return self.thrift_struct(depth)
        raise InvalidPageError(f"no field has the type {kind}")

    def _signed(self) -> int:
        raw = self.number()
        return (raw >> 1) ^ -(raw & 1)


def _number(fields: Any, field: int, most: int = _MOST_BYTES) -> int:
    found = fields.get(field) if isinstance(fields, dict) else None
    if not isinstance(found, int) or not 0 <= found <= most:
        raise InvalidPageError(f"field {field} of a header is {found!r}")
    return int(found)


def _structs(fields: Any, field: int) -> list[dict[int, Any]]:
    items = fields.get(field)
    if not isinstance(items, list) or not all(isinstance(each, dict) for each in items):
        raise InvalidPageError("a list of structs is missing")
    return items


def offset_index_spans(footer: memoryview, place: int) -> list[tuple[int, int] | None]:
    """Return the first byte and end of the offset index of the column `place`, for each row group.

    None for a row group without an offset index. Raises InvalidPageError.
    """
    spans: list[tuple[int, int] | None] = []
    for group in _structs(Cursor(footer).thrift_struct(), 4):
        chunk = dict(enumerate(_structs(group, 1))).get(place, {})
        start = None if chunk.get(4) is None else _number(chunk, 4, _ANYWHERE)
        spans.append(None if start is None else (start, start + _number(chunk, 5)))
    return spans


def read_offset_index(data: memoryview, whole: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """Return the first byte, end and rows of each data page of the column chunk with those of `whole`.

    Raises InvalidPageError.
    """
    pages = _structs(Cursor(data).thrift_struct(), 1)
    first_row = [_number(page, 3, _ANYWHERE) for page in pages] + [whole[2]]
    rows = [stop - start for start, stop in pairwise(first_row)]
    if first_row[0] or min(rows, default=0) < 0:
        raise InvalidPageError("the rows of pages do not follow each other")
    start = [_number(page, 1, _ANYWHERE) for page in pages]
    stop = [first + _number(page, 2) for first, page in zip(start, pages, strict=True)]
    if min(start, default=whole[0]) < whole[0] or max(stop, default=0) > whole[1]:
        raise InvalidPageError("pages lie outside their column")
    return list(zip(start, stop, rows, strict=True))


def unpack_pages(data: memoryview, *, rows: int, codec: str, most_level: int) -> UnpackedValues:
    """Return the locations of `rows` values in consecutive pages, which start with the dictionary, if any.

    `codec`: one of `CODECS`. `most_level`: definition level of a non-null value; 0: no nulls. Raises InvalidPageError.
    """
    pages, unpacking = Cursor(data), _Unpacking(codec, most_level)
    found = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    left = rows
    while left and pages.left:
        header = pages.thrift_struct()
        kind, body = _number(header, 1), pages.take(_number(header, 3))
        if kind == _DICTIONARY_PAGE:
            unpacking.take_dictionary(header, body, pages.at)
        elif kind in _ABOUT:
            count = _number(header.get(_ABOUT[kind]), 1)
            if count > left:
                raise InvalidPageError(f"{count:,} values are in a page, and {left:,} are left of its rows")
            found.append(unpacking.values(header, body, pages.at, count))
            left -= count
    if left:
        raise InvalidPageError(f"{rows:,} rows are announced, and {rows - left:,} are there")
    offset, length = (np.concatenate(parts) for parts in zip(*found, strict=True))
    pieces = unpacking.pieces
    if codec == CODECS[0]:
        return UnpackedValues(None, offset, length)
    return UnpackedValues(pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces)), offset, length)


class _Unpacking:
    """State of unpacking consecutive pages. `end`: end of a page's body in their bytes."""

    def __init__(self, codec: str, most_level: int) -> None:
        self._codec, self._most_level = codec, most_level
        self._dictionary = np.empty(0, np.int64), np.empty(0, np.int64)
        self._size = 0
        self.pieces: list[memoryview] = []
        """Decompressed pages."""

    def take_dictionary(self, header: dict[int, Any], body: memoryview, end: int) -> None:
        content, base = self._content(body, _number(header, 2), end)
        self._dictionary = _plain(content, base, _number(header.get(_ABOUT[_DICTIONARY_PAGE]), 1))

    def values(self, header: dict[int, Any], body: memoryview, end: int, count: int) -> tuple[Ints, Ints]:
        """Return the offsets and lengths of the `count` values of a data page."""
        kind, size = header[1], _number(header, 2)
        about = header[_ABOUT[kind]]
        if kind == _DATA_PAGE:
            encoding = _number(about, 2)
            content, base = self._content(body, size, end)
            cursor = Cursor(content)
            levels = cursor.take(int.from_bytes(cursor.take(4), "little") if self._most_level else 0)
        else:
            encoding, cut = _number(about, 4), _number(about, 5)
            if _number(about, 6):
                raise InvalidPageError("values repeat")
            levels = Cursor(body).take(cut)
            content, base = self._content(body[cut:], size - cut, end, compressed=about.get(7) is not False)
            cursor = Cursor(content)
        present = hybrid_numbers(levels, self._most_level.bit_length(), count) == self._most_level
        places = self._places(encoding, content[cursor.at :], base + cursor.at, int(present.sum()))
        offset, length = np.zeros(count, np.int64), np.full(count, ABSENT, np.int64)
        offset[present], length[present] = places
        return offset, length

    def _places(self, encoding: int, values: memoryview, base: int, count: int) -> tuple[Ints, Ints]:
        if encoding == _PLAIN:
            return _plain(values, base, count)
        if encoding not in _DICTIONARY:
            raise InvalidPageError(f"values are encoded by {encoding}")
        cursor = Cursor(values)
        index = hybrid_numbers(values[1:], cursor.take(1)[0], count) if count else np.empty(0, np.int64)
        offset, length = self._dictionary
        if len(index) and int(index.max()) >= len(offset):
            raise InvalidPageError(f"entry {int(index.max()):,} of a dictionary of {len(offset):,} is asked for")
        return offset[index], length[index]

    def _content(self, body: memoryview, size: int, end: int, *, compressed: bool = True) -> tuple[memoryview, int]:
        """Return uncompressed bytes, and their start in the memory that offsets refer to."""
        if self._codec == CODECS[0]:
            return body, end - len(body)
        content = _decompressed(self._codec, body, size) if compressed else body
        self.pieces.append(content)
        self._size += len(content)
        return content, self._size - len(content)


def _plain(content: memoryview, base: int, count: int) -> tuple[Ints, Ints]:
    """Return the offsets and lengths of plain values; each value follows its length."""
    length_at = struct.Struct("<I").unpack_from
    offsets, lengths, at = [], [], 0
    for _ in range(count):
        if at > len(content) - 4:
            raise InvalidPageError("a value lies behind the end of its page")
        size = length_at(content, at)[0]
        offsets.append(base + at + 4)
        lengths.append(size)
        at += 4 + size
    if at > len(content):
        raise InvalidPageError("a value ends behind its page")
    return np.array(offsets, np.int64), np.array(lengths, np.int64)


def hybrid_numbers(data: memoryview, width: int, count: int) -> Ints:
    """Return `count` numbers of `width` bits from Parquet's RLE/bit-packing hybrid. Raises InvalidPageError."""
    if width > _WIDEST:
        raise InvalidPageError(f"numbers of {width} bits are announced")
    numbers = np.zeros(count, np.int64)
    cursor, done = Cursor(data), 0
    while width and done < count:
        head = cursor.number()
        if head & 1:
            packed = np.frombuffer(cursor.take(min((head >> 1) * width, cursor.left)), np.uint8)
            run = min(len(packed) * 8 // width, count - done)
            bits = np.unpackbits(packed, count=run * width, bitorder="little").reshape(run, width)
            numbers[done : done + run] = bits @ (1 << np.arange(width, dtype=np.int64))
        else:
            run = min(head >> 1, count - done)
            numbers[done : done + run] = int.from_bytes(cursor.take((width + 7) // 8), "little")
        if not run:
            raise InvalidPageError("a run of no numbers is announced")
        done += run
    return numbers


def _decompressed(codec: str, body: memoryview, size: int) -> memoryview:
    import pyarrow as pa

    if not size:
        return body[:0]
    try:
        return memoryview(pa.Codec(codec.lower()).decompress(body, size)).cast("B")
    except (pa.ArrowException, OSError) as error:
        raise InvalidPageError(f"a page cannot be decompressed by {codec}: {error}") from error
