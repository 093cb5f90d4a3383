"""Samples of streams: values that their files hold besides images, and the sequence that names the files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, takewhile
from typing import Any

_MOST_TEXT = 200
"""Characters at the end of a path that are searched for a name."""


@dataclass(frozen=True)
class SampleFiles:
    """Tars or tables that `hr.open` accepts, and how the dataset draws samples from them.

    By default, each sample once in file order.
    """

    files: tuple[str, ...]
    rows: tuple[int, ...] | None = None
    """Rows of the table that are the dataset's samples; None for all."""
    is_shuffled: bool = False
    buffer: int = 0
    """Size of the shuffle buffer in samples."""
    epoch: int | None = None
    """Samples, or batches, per epoch in the script."""
    is_resampled: bool = False
    selects: tuple[str, ...] = ()
    """Names of functions that select samples."""
    drops: bool = False
    """True if a short last batch is dropped."""


def member_columns(members: Mapping[int, Mapping[str, bytes]]) -> dict[str, list[Any]]:
    """Return the values in the files of samples, by the names of `hr.open`.

    `members` are files by extension of the samples at these positions; a position without one has None. Only text files
    have values.
    """
    read = {place: dict(_values(files)) for place, files in members.items()}
    names = dict.fromkeys(name for values in read.values() for name in values)
    count = max(read, default=-1) + 1
    return {name: _as_numbers([read.get(place, {}).get(name) for place in range(count)]) for name in names}


def _values(files: Mapping[str, bytes]) -> Iterator[tuple[str, Any]]:
    for name, data in files.items():
        try:
            text = data.decode()
            if name.split(".")[-1] == "json":
                yield from _keys(name, json.loads(text))
            else:
                yield name, text
        except ValueError:  # no text, or no JSON
            continue


def _keys(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    for key, one in value.items() if isinstance(value, dict) else ():
        if isinstance(one, dict):
            yield from _keys(f"{name}.{key}", one)
        else:
            yield f"{name}.{key}", one


def _as_numbers(column: list[Any]) -> list[Any]:
    """Return a column of files with one integer each as numbers."""
    is_number = all(isinstance(one, str) and one.strip().lstrip("-").isdecimal() for one in column if one is not None)
    return [None if one is None else int(one) for one in column] if is_number else column


def places_of(paths: Sequence[str], columns: Iterable[Sequence[Any]]) -> tuple[int, list[int]] | None:
    """Return the length of the column that names all of these files uniquely, and their positions in it.

    A name matches if the path contains it; the longest match counts. Of several columns, the one with the longest names
    counts. A column that names a file twice is ignored.
    """
    found: list[tuple[int, int, list[int]]] = []
    for column in columns:
        places = {one: place for place, one in enumerate(column) if isinstance(one, str) and one}
        named = list(takewhile(bool, (_name_in(path, places) for path in paths)))
        if len(places) == len(column) and len(named) == len(paths) and len(set(named)) == len(set(paths)):
            found.append((min(map(len, named), default=0), len(column), [places[name] for name in named]))
    return max(found, key=lambda each: each[0])[1:] if found else None


def _name_in(path: str, places: Mapping[str, int]) -> str:
    path = path[-_MOST_TEXT:]
    parts = (path[start:end] for start, end in combinations(range(len(path) + 1), 2))
    return max((part for part in parts if part in places), key=len, default="")
