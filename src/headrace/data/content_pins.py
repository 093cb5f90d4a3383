"""Content hashes of a dataset's files, for a resumed run to detect replaced files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from headrace.data.location import ColumnFiles
from headrace.data.table import SampleTable, spread_over
from headrace.errors import ChangedError, HeadraceError
from headrace.system import work_through

_MOST_PINS = 32
_LOOSE_FILES = 16
"""Files to pin in a column with one file per sample; each costs an open or a request."""
_THREADS = 16
_PIN_HEX, _PLACE_HEX = 6, 8
_UNKNOWN = "-" * _PIN_HEX


class ContentPins(NamedTuple):
    """Hashes of the contents of a dataset's files."""

    place: str
    """Hash of the objects' addresses. Local paths do not count, since a copy of a file has the same content."""
    pins: tuple[str, ...]
    """Hash of each run of neighbouring files; `_UNKNOWN` if the content of any of them is unknown."""
    files: tuple[str, ...]
    """Description of each run for messages: the path or address of its first file, and how many follow."""

    def __str__(self) -> str:
        """Return the pins as saved in a state, in at most 201 characters."""
        return f"{self.place}.{''.join(self.pins)}"

    def check(self, saved: str) -> None:
        """Raise ChangedError if a file's content differs from when the pins `saved` were made.

        Pins of other columns, or of objects at other addresses, are not compared.
        """
        place, _, text = saved.partition(".")
        pins = [text[start : start + _PIN_HEX] for start in range(0, len(text), _PIN_HEX)]
        if place != self.place or len(pins) != len(self.pins):
            return
        for here, there, file in zip(self.pins, pins, self.files, strict=True):
            if here != there and _UNKNOWN not in (here, there):
                raise ChangedError(
                    f"{file}: expected the content of when the state was saved, got another, so "
                    "the run would go on with other samples than it began with. Put the file back, start afresh, or "
                    "pass allow_changed=True to load_state_dict"
                )


def pin_content(columns: Sequence[tuple[SampleTable, str]]) -> ContentPins:
    """Return pins of the files behind the bytes of these columns. An unreadable file is unknown.

    An object's pin hashes its metadata in the store (ETag, version or time). A local file's pin hashes its size and
    samples of its content, so a copy has the same pin. All archives and files of rows are pinned. Of columns with one
    file per sample, sixteen files spread over the dataset are pinned.
    """
    files: dict[tuple[ColumnFiles, int], None] = {}
    for table, name in columns:
        column = table.bytes_of(name)
        held, numbers = column.files, range(len(column.files)) if column.files.archives else None
        if numbers is None:
            at = column.locate(spread_over(len(table), _LOOSE_FILES))
            held, numbers = held if at.files is None else at.files, at.path_id.tolist()
        files |= dict.fromkeys((held, number) for number in numbers)
    known: dict[tuple[ColumnFiles, int], _Content] = {}

    def look(file: tuple[ColumnFiles, int]) -> None:
        known[file] = _content_of(*file)

    if files:
        work_through(list(files), look, name="pin", threads=min(_THREADS, len(files)))
    contents = [known[file] for file in files]
    place = _hash([[name for _, name in columns], [each.path for each in contents if each.is_object]], _PLACE_HEX)
    runs = np.array_split(np.arange(len(contents)), min(_MOST_PINS, len(contents))) if contents else []
    names = [[contents[number].name for number in run] for run in runs]
    pins = tuple(_UNKNOWN if None in each else _hash(each, _PIN_HEX) for each in names)
    more = [f" or one of the {len(run) - 1} after it" if len(run) > 1 else "" for run in runs]
    texts = tuple(contents[run[0]].path + text for run, text in zip(runs, more, strict=True))
    return ContentPins(place, pins, texts)


class _Content(NamedTuple):
    path: str
    is_object: bool
    name: str | None
    """`ColumnFiles.content_name`; None if unknown."""


def _content_of(files: ColumnFiles, number: int) -> _Content:
    path, is_object = "", False
    try:
        path = os.fsdecode(files.path(number))
        is_object = files.object(number) is not None
        return _Content(path, is_object, files.content_name(number))
    except HeadraceError:
        return _Content(path, is_object, None)


def _hash(value: object, digits: int) -> str:
    return hashlib.blake2b(repr(value).encode(), digest_size=16).hexdigest()[:digits]
