"""Columns of a live dataset: sequences whose element `i` is the path, text, label or row of sample `i`.

The search runs no user code except `__len__`. Attributes are read as in `objects`; elements are read through the
methods of the built-in class, table or array. No file is opened and nothing is decoded.
"""

from __future__ import annotations

import re
import time
from array import array
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from itertools import count
from types import MemberDescriptorType
from typing import Any, Callable

from .column_sources import NUMBERS, Column, base_of, is_missing, length_of, plain_value, sequence_of
from .objects import COMPOSED, LEAVES, attributes_of, members_of

MOST_LEVELS = 6
"""Levels of nested objects searched from a dataset to its column."""
MOST_ROW_LEVELS = 3
_INDICES = re.compile(r"ind|idx|ids$")
"""Attribute names that may hold, for each sample, an index into another sequence."""


class ColumnBudget:
    """Limits of one search, which starts on construction."""

    def __init__(self, seconds: float = 2.0, objects: int = 1 << 15) -> None:
        """`objects`: the most objects, containers, parts of rows and chunks of indices to read."""
        self._until = time.monotonic() + seconds
        self._left = objects
        self.is_spent = False
        """True if the search ended before it was complete."""

    def take(self) -> bool:
        """Count one object; return False if the search has to end."""
        self._left -= 1
        self.is_spent = self.is_spent or self._left < 0 or time.monotonic() > self._until
        return not self.is_spent


def found_columns(dataset: Any, length: int, budget: ColumnBudget) -> list[Column]:
    """Return the columns of a live dataset, nearest first, named by place; incomplete if `budget.is_spent`."""
    return _Search(budget).columns(dataset, length, "")


class _Search:
    """Search of a dataset and its nested datasets within one budget."""

    def __init__(self, budget: ColumnBudget) -> None:
        self._budget = budget
        self._open: set[int] = set()
        """Ids of the nested datasets being searched."""

    def columns(self, dataset: Any, length: int, place: str) -> list[Column]:
        """Return the columns in and below a dataset named `place`."""
        if id(dataset) in self._open:
            return []
        self._open.add(id(dataset))
        try:
            found: dict[str, Column] = {}
            for column in self._walk(dataset, length, place):
                base = column.name.lstrip(".")
                base = "dataset" + base if base[:1] in ("", "[") else base
                column.name = next(name for name in _numbered(base) if name not in found)
                found[column.name] = column
            return list(found.values())
        finally:
            self._open.discard(id(dataset))

    def _walk(self, dataset: Any, length: int, place: str) -> Iterator[Column]:
        """Yield the columns that the dataset holds, then the columns reached through indices or keys."""
        keys = [Column("", length, list)]
        mappings: dict[str, dict[Any, Any]] = {}
        objects: list[tuple[dict[str, Any], str]] = []
        seen: dict[int, Any] = {}
        waiting: deque[tuple[Any, str, int]] = deque([(dataset, place, 0)])
        while waiting and self._budget.take():
            thing, name, level = waiting.popleft()
            if id(thing) in seen:
                continue
            seen[id(thing)] = thing
            if issubclass(type(thing), dict):
                mappings[name] = thing
            try:
                own, members = self._one(thing, length, name)
            except Exception:  # of a library or of a `__len__`: the rest may be readable
                continue
            yield from own
            keys += own
            objects.append((members, name))
            if level < MOST_LEVELS:
                inner = {label: one for label, one in members.items() if not issubclass(type(one), LEAVES)}
                waiting.extend((one, name + label, level + 1) for label, one in inner.items())
        for members, name in objects:
            yield from self._picked(members, length, name, members)
        yield from self._looked_up(keys, mappings)

    def _one(self, thing: Any, length: int, name: str) -> tuple[list[Column], dict[str, Any]]:
        """Return the columns that an object itself forms, and the members that may hold more."""
        sequence = sequence_of(thing, name)
        if sequence is not None and len(sequence) == length:
            columns = list(self._split(sequence))
            if columns:
                return columns, {}
        members = members_of(thing)
        if issubclass(type(thing), (list, tuple)):
            joined = self._joined(list(members.values()), length, name)
            return (joined, {}) if joined is not None else ([], members)
        if COMPOSED in members:
            picked = list(self._picked(members, length, name, [COMPOSED]))
            if picked:
                return picked, {label: member for label, member in members.items() if label != COMPOSED}
        return [], members

    def _split(self, column: Column, level: int = 0) -> Iterator[Column]:
        """Yield a column of plain values, and the columns of the parts of its rows."""
        if not self._budget.take():
            return
        try:
            rows = [row for row in column.probed() if not is_missing(row)]
            is_plain = all(plain_value(row) is not None for row in rows)
            parts = row_parts(rows) if rows and level < MOST_ROW_LEVELS else []
        except Exception:  # of a library that cannot read its own elements
            return
        if rows and is_plain:
            yield column
        for label, take_part in parts:
            yield from self._split(column.part(label, take_part), level + 1)

    def _joined(self, parts: list[Any], length: int, place: str) -> list[Column] | None:
        """Return the columns common to concatenated datasets; None if their sizes do not sum to `length`."""
        sizes = [size for size in map(length_of, parts) if size is not None]
        if len(parts) < 2 or len(sizes) < len(parts) or sum(sizes) != length:
            return None
        by_part = [self.columns(part, size, place) for part, size in zip(parts, sizes) if size]
        found = [{column.name: column for column in columns} for columns in by_part]
        shared = [name for name in found[0] if all(name in columns for columns in found)]
        return [Column.concatenated(name, [columns[name] for columns in found]) for name in shared]

    def _picked(self, members: dict[str, Any], length: int, place: str, targets: Collection[str]) -> Iterator[Column]:
        """Yield the columns of members into which another member holds indices."""
        for label in filter(_INDICES.search, members):
            reaches = {other: length_of(members[other]) for other in targets if other != label}
            picks = self._picks(members[label], length) if any(reaches.values()) else None
            if picks is None:
                continue
            most = max(picks)
            for other, reach in reaches.items():
                if reach is None or reach <= most or (reach == length and picks == array("q", range(length))):
                    continue
                for column in self.columns(members[other], reach, place + other):
                    yield column.picked(picks)

    def _picks(self, indices: Any, length: int) -> array[int] | None:
        """Return the indices of `length` samples, or None if `indices` holds anything else."""
        picks = array("q")
        try:
            column = sequence_of(indices, "")
            if column is None or len(column) != length or {type(plain_value(one)) for one in column.probed()} != {int}:
                return None
            for chunk in column.chunks():
                picks.extend(chunk)
                if min(chunk) < 0 or not self._budget.take():
                    return None
        except Exception:  # not all are numbers, or they cannot be read
            return None
        return picks

    def _looked_up(self, keys: list[Column], mappings: dict[str, dict[Any, Any]]) -> Iterator[Column]:
        """Yield the columns of dicts that have an entry for each value of another column."""
        tried: set[tuple[Any, ...]] = set()
        for key in keys if mappings else ():
            values = tuple(map(plain_value, key.probed()))
            if len(set(map(str, values))) < 2 or not all(type(one) in (str, int) for one in values) or values in tried:
                continue
            tried.add(values)
            for name, mapping in mappings.items():
                if all(dict.__contains__(mapping, one) for one in values):
                    yield from self._split(key.looked_up(f"{name}[{key.name}]" if key.name else name, mapping))


def _numbered(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}~{number}" for number in count(2))


MOST_PARTS = 64
"""Keys, positions or attributes of a row that are read."""
MOST_WORDS = 16


def row_parts(rows: Sequence[Any]) -> list[tuple[str, Callable[[Any], Any]]]:
    """Return the label of each part of uniform rows, and the function that takes the part from a row.

    A list of numbers has no parts. A text line is split into words if the word at one position names a file in every
    line.
    """
    kinds = {type(row) for row in rows}
    if all(issubclass(kind, str) for kind in kinds):
        return _words(rows)
    if all(issubclass(kind, dict) for kind in kinds):
        keys = dict.fromkeys(key for row in rows for key in dict.keys(row) if type(key) in (str, int))
        return [(f".{key}", _by_key(key)) for key in list(keys)[:MOST_PARTS]]
    if all(issubclass(kind, (list, tuple)) for kind in kinds):
        return _places(rows)
    if len(kinds) > 1 or plain_value(rows[0]) is not None:
        return []
    (kind,) = kinds
    names = [name for name in attributes_of(rows[0]) if not name.startswith("__") and _is_held(kind, name)]
    return [(f".{name}", _by_name(kind, name)) for name in names[:MOST_PARTS]]


def _words(lines: Sequence[str]) -> list[tuple[str, Callable[[Any], Any]]]:
    """Return the words of lines with equal word counts, or the stripped line if whitespace surrounds any line."""
    if any(str.strip(line) != line for line in lines):
        return [(".strip()", lambda line: str.strip(line) if issubclass(type(line), str) else None)]
    for separator in ("\t", ",", None):
        split = [str.split(line, separator) for line in lines]
        count = len(split[0])
        if not 2 <= count <= MOST_WORDS or any(len(words) != count for words in split):
            continue
        if any(all(_names_a_file(words[place]) for words in split) for place in range(count)):
            parts = [(f"[{place}]", _by_word(place, separator, count, str)) for place in range(count)]
            are_numbers = [all(_number(words[place]) is not None for words in split) for place in range(count)]
            return parts + [
                (f"[{place}] as number", _by_word(place, separator, count, _number))
                for place in range(count)
                if are_numbers[place]
            ]
    return []


def _names_a_file(word: str) -> bool:
    return _number(word) is None and ("/" in word or "." in word[1:-1])


def _number(word: str) -> Any:
    try:
        number = float(word)
    except ValueError:
        return None
    return int(number) if word.lstrip("+-").isdecimal() else number


def _by_word(place: int, separator: Any, count: int, read: Callable[[str], Any]) -> Callable[[Any], Any]:
    def take(line: Any) -> Any:
        words = str.split(line, separator) if issubclass(type(line), str) else []
        return read(words[place]) if len(words) == count else None

    return take


def _places(rows: Sequence[Any]) -> list[tuple[str, Callable[[Any], Any]]]:
    """Return the parts of lists or tuples of equal length."""
    lengths = {base_of(row).__len__(row) for row in rows}
    length, first = max(lengths), rows[0]
    if len(lengths) > 1 or length > MOST_PARTS:
        return []
    if issubclass(type(first), list) and all(type(each) in NUMBERS for each in list.__iter__(first)):
        return []
    fields = getattr(type(first), "_fields", None)
    labels = [f".{name}" for name in fields] if type(fields) is tuple else [f"[{place}]" for place in range(length)]
    return [(label, _by_place(place)) for place, label in enumerate(labels[:length])]


def _by_place(place: int) -> Callable[[Any], Any]:
    def take(row: Any) -> Any:
        if type(row) is tuple:  # the usual type of rows
            return row[place] if place < len(row) else None
        if not issubclass(type(row), (list, tuple)):
            return None
        base = base_of(row)
        return base.__getitem__(row, place) if place < base.__len__(row) else None

    return take


def _by_key(key: Any) -> Callable[[Any], Any]:
    return lambda row: dict.get(row, key) if issubclass(type(row), dict) else None


def _by_name(kind: type, name: str) -> Callable[[Any], Any]:
    def take(row: Any) -> Any:
        try:
            return object.__getattribute__(row, name) if type(row) is kind else None
        except AttributeError:  # this row lacks the attribute
            return None

    return take


def _is_held(kind: type, name: str) -> bool:
    """Return True if the object itself stores an attribute, and no property of its class computes it."""
    for base in type.__getattribute__(kind, "__mro__"):
        if name in vars(base):
            found = vars(base)[name]
            return type(found) is MemberDescriptorType or not hasattr(type(found), "__set__")
    return True
