"""Locate binary values inside the pages of a parquet column chunk, using only the bytes of the pages. Pure.

Parquet's format: https://parquet.apache.org/docs/file-format/. Headers and indices use Thrift's compact protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from headrace.data.location import ABSENT
from headrace.data.storage.strings import Ints

PLAIN_ENCODINGS = frozenset({"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"})
"""Encodings of values, dictionaries and levels that `unpack_pages` supports."""
CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "BROTLI", "ZSTD")
"""Compressions that `unpack_pages` supports. Cached indices depend on their order."""
_PLAIN, _DICTIONARY = 0, (2, 8)
_DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = range(4)
_DEEPEST = 16
"""Maximum nesting of structs and lists in a header."""
_MOST_BYTES = 1 << 31
"""Maximum size of a page in Parquet."""
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


class PageSpan(NamedTuple):
    """Page in the offset index."""

    start: int
    """First byte of the page header in the file."""
    bytes: int
    first_row: int
    """Row of the first value in the row group."""


# --- Thrift's compact protocol ---


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return an unsigned number of at most 64 bits, and the offset of the next byte. Raises InvalidPageError."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise InvalidPageError("a number has no end")


def read_struct(data: memoryview, at: int = 0, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Return a struct's fields by id, with nested structs as dicts, and the offset of the byte after it.

    Raises InvalidPageError.
    """
    fields: dict[int, Any] = {}
    field = 0
    while True:
        if at >= len(data) or depth > _DEEPEST:
            raise InvalidPageError("a struct has no end")
        head, at = data[at], at + 1
        if head == 0:
            return fields, at
        if head >> 4:
            field += head >> 4
        else:
            raw, at = read_varint(data, at)
            field = _signed(raw)
        kind = head & 15
        if kind in (1, 2):  # the type encodes a boolean's value
            fields[field] = kind == 1
        else:
            fields[field], at = _value(data, at, kind, depth)


def _value(data: memoryview, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (1, 2, 3):  # a byte, or a boolean in a list
        return _slice(data, at, 1)[0], at + 1
    if kind in (4, 5, 6):
        raw, at = read_varint(data, at)
        return _signed(raw), at
    if kind == 7:
        return struct.unpack("<d", _slice(data, at, 8))[0], at + 8
    if kind == 8:
        size, at = read_varint(data, at)
        return _slice(data, at, size), at + size
    if kind in (9, 10):
        return _items(data, at, depth)
    if kind == 12:
        return read_struct(data, at, depth + 1)
    raise InvalidPageError(f"no field has the type {kind}")


def _items(data: memoryview, at: int, depth: int) -> tuple[list[Any], int]:
    head, at = _slice(data, at, 1)[0], at + 1
    size = head >> 4
    if size == 15:
        size, at = read_varint(data, at)
    if size > len(data) - at:  # each item takes at least one byte
        raise InvalidPageError(f"a list of {size:,} is longer than what holds it")
    items = []
    for _ in range(size):
        item, at = _value(data, at, head & 15, depth + 1)
        items.append(item)
    return items, at


def _signed(raw: int) -> int:
    return (raw >> 1) ^ -(raw & 1)


def _slice(data: memoryview, at: int, size: int) -> memoryview:
    if not 0 <= size <= len(data) - at:
        raise InvalidPageError(f"{size:,} bytes are announced, and {max(0, len(data) - at):,} are there")
    return data[at : at + size]


def _number(fields: Any, field: int, most: int = _MOST_BYTES) -> int:
    found = fields.get(field) if isinstance(fields, dict) else None
    if not isinstance(found, int) or not 0 <= found <= most:
        raise InvalidPageError(f"field {field} of a header is {found!r}")
    return int(found)


# --- the footer, and the index of pages ---


def offset_index_spans(footer: memoryview) -> list[list[tuple[int, int] | None]]:
    """Return the (offset, size) of each column chunk's offset index, by row group and column.

    None for a chunk without an offset index. Raises InvalidPageError.
    """
    metadata, _ = read_struct(footer)
    found: list[list[tuple[int, int] | None]] = []
    for group in _structs(metadata.get(4)):
        spans: list[tuple[int, int] | None] = []
        for chunk in _structs(group.get(1)):
            span = None if chunk.get(4) is None else (_number(chunk, 4, 1 << 62), _number(chunk, 5))
            spans.append(span)
        found.append(spans)
    return found


def read_offset_index(data: memoryview) -> list[PageSpan]:
    """Return the data pages of one column chunk. Raises InvalidPageError."""
    pages = _structs(read_struct(data)[0].get(1))
    return [PageSpan(_number(page, 1, 1 << 62), _number(page, 2), _number(page, 3, 1 << 62)) for page in pages]


def _structs(items: Any) -> list[dict[int, Any]]:
    if not isinstance(items, list) or not all(isinstance(each, dict) for each in items):
        raise InvalidPageError("a list of structs is missing")
    return items


# --- pages ---


class _Page(NamedTuple):
    kind: int
    values: int
    encoding: int
    body: memoryview
    """Stored bytes, which may be compressed."""
    bytes: int
    """Uncompressed size."""
    start: int
    """Start of the body in the given data."""
    level_bytes: int
    """Bytes of definition levels before the values, never compressed; -1: the levels start with their size."""
    is_compressed: bool


def _pages(data: memoryview) -> Iterator[_Page]:
    at = 0
    while at < len(data):
        header, at = read_struct(data, at)
        kind, size, stored = (_number(header, field) for field in (1, 2, 3))
        body, start = _slice(data, at, stored), at
        at += stored
        if kind == _INDEX_PAGE:
            continue
        about: Any = header.get({_DATA_PAGE: 5, _DICTIONARY_PAGE: 7, _DATA_PAGE_V2: 8}.get(kind, -1))
        levels, is_compressed = -1, True
        if kind == _DATA_PAGE_V2:
            levels = _number(about, 5)
            if _number(about, 6):
                raise InvalidPageError("values repeat")
            is_compressed = not (isinstance(about, dict) and about.get(7) is False)
        encoding = _number(about, 4 if kind == _DATA_PAGE_V2 else 2)
        yield _Page(kind, _number(about, 1), encoding, body, size, start, levels, is_compressed)


class _Unpacking:
    """State of unpacking consecutive pages."""

    def __init__(self, codec: str, most_level: int) -> None:
        self.codec, self.most_level = codec, most_level
        self.pieces: list[memoryview] = []
        self.size = 0
        self.dictionary: tuple[Ints, Ints] | None = None

    def take(self, page: _Page, rows: int) -> tuple[Ints, Ints]:
        """Return the offsets and lengths of a page's values, at most `rows` of them."""
        content, base = self._content(page)
        if page.kind == _DICTIONARY_PAGE:
            self.dictionary = _plain(content, base, page.values)
            return self.dictionary
        if page.values > rows:
            raise InvalidPageError(f"{page.values:,} values are in a page, and {rows:,} are left of its rows")
        present, begin = self._present(page, content)
        count = int(present.sum())
        values = content[begin:]
        if page.encoding == _PLAIN:
            offset, length = _plain(values, base + begin, count)
        elif page.encoding in _DICTIONARY and self.dictionary is not None:
            known, sizes = self.dictionary
            index = hybrid_numbers(values[1:], _slice(values, 0, 1)[0], count) if count else np.empty(0, np.int64)
            if len(index) and int(index.max()) >= len(known):
                raise InvalidPageError(f"entry {int(index.max()):,} of a dictionary of {len(known):,} is asked for")
            offset, length = known[index], sizes[index]
        else:
            raise InvalidPageError(f"values are encoded by {page.encoding}")
        all_offsets, all_lengths = np.zeros(page.values, np.int64), np.full(page.values, ABSENT, np.int64)
        all_offsets[present], all_lengths[present] = offset, length
        return all_offsets, all_lengths

    def _content(self, page: _Page) -> tuple[memoryview, int]:
        """Return a page's uncompressed bytes, and their start in the memory that offsets refer to."""
        if self.codec == CODECS[0]:
            return page.body, page.start
        plain = max(0, page.level_bytes)
        content = page.body
        if page.is_compressed:
            head = _slice(page.body, 0, plain)
            content = _decompressed(self.codec, page.body[plain:], page.bytes - plain)
            content = memoryview(bytes(head) + content.tobytes()) if plain else content
        base = self.size
        self.pieces.append(content)
        self.size += len(content)
        return content, base

    def _present(self, page: _Page, content: memoryview) -> tuple[Any, int]:
        """Return a mask of a page's non-null values, and the offset of their bytes."""
        begin, size = 0, page.level_bytes
        if self.most_level and size < 0:
            begin, size = 4, int.from_bytes(_slice(content, 0, 4), "little")
        size = max(size, 0)
        if not self.most_level:
            return np.ones(page.values, bool), begin + size
        levels = hybrid_numbers(_slice(content, begin, size), self.most_level.bit_length(), page.values)
        return levels == self.most_level, begin + size


def unpack_pages(data: memoryview, *, rows: int, codec: str, most_level: int) -> UnpackedValues:
    """Return the locations of `rows` values in consecutive pages, which start with the dictionary, if any.

    `codec`: one of `CODECS`. `most_level`: definition level of a non-null value; 0: no nulls. Raises InvalidPageError.
    """
    found: list[tuple[Ints, Ints]] = []
    unpacking = _Unpacking(codec, most_level)
    left = rows
    for page in _pages(data):
        places = unpacking.take(page, left)
        if page.kind != _DICTIONARY_PAGE:
            found.append(places)
            left -= page.values
        if not left:
            break
    if left:
        raise InvalidPageError(f"{rows:,} rows are announced, and {rows - left:,} are there")
    offset = np.concatenate([np.empty(0, np.int64), *(each[0] for each in found)])
    length = np.concatenate([np.empty(0, np.int64), *(each[1] for each in found)])
    if codec == CODECS[0]:
        return UnpackedValues(None, offset, length)
    pieces = unpacking.pieces
    return UnpackedValues(pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces)), offset, length)


def _plain(content: memoryview, base: int, count: int) -> tuple[Ints, Ints]:
    """Return the offsets and lengths of plain values; each value follows its length."""
    if count * 4 > len(content):
        raise InvalidPageError(f"{count:,} values are announced in {len(content):,} bytes")
    length_at, end = struct.Struct("<I").unpack_from, len(content) - 4
    offsets, lengths, at = [], [], 0
    for _ in range(count):
        if at > end:
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
    done = at = 0
    while done < count:
        head, at = read_varint(data, at)
        run = min(head >> 1, count - done) if not head & 1 else min((head >> 1) * 8, count - done)
        if not run:
            raise InvalidPageError("a run of no numbers is announced")
        if head & 1:
            packed = np.frombuffer(_slice(data, at, min((head >> 1) * width, len(data) - at)), np.uint8)
            at += len(packed)
            if len(packed) * 8 < run * width:
                raise InvalidPageError("packed numbers have no end")
            bits = np.unpackbits(packed, count=run * width, bitorder="little").reshape(run, width)
            numbers[done : done + run] = bits @ (1 << np.arange(width, dtype=np.int64))
        else:
            size = (width + 7) // 8
            numbers[done : done + run] = int.from_bytes(_slice(data, at, size), "little")
            at += size
        done += run
    return numbers


def _decompressed(codec: str, body: memoryview, size: int) -> memoryview:
    import pyarrow as pa

    if size < 0:
        raise InvalidPageError("levels are longer than their page")
    if not size:
        return memoryview(b"")
    try:
        return memoryview(pa.Codec(codec.lower()).decompress(body, size)).cast("B")
    except (pa.ArrowException, OSError) as error:
        raise InvalidPageError(f"a page cannot be decompressed by {codec}: {error}") from error
