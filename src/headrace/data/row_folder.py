"""A folder of files of rows, such as the Hugging Face Hub's `data/`: which files are one dataset."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from headrace.data.manifest.formats import SUFFIXES
from headrace.errors import UsageError

_SUFFIXES = tuple(suffix for suffix in SUFFIXES if suffix != ".txt")
"""Endings that make a folder one of rows: texts lie in many."""
_BESIDE = re.compile(r"readme|licen[cs]e|dataset_infos?\.json|.*\.(md|headrace|headrace\.partial)$", re.IGNORECASE)
"""What may lie there as well."""
_SHARD = re.compile(r"(?P<split>.+?)[-_.]\d+-of-\d+([-_.].*)?$")
_SPLIT = re.compile(
    r"(?P<split>train|training|test|testing|valid|validation|val|dev|eval)(?![a-z0-9]).*$", re.IGNORECASE
)


def rows_in_folder(folder: str) -> list[str]:
    """Return the files of rows in a folder (absolute) that holds no other samples, by name; none where it is no such
    folder.

    Raises UsageError where they are several splits, as their names say.
    """
    with os.scandir(folder) as entries:
        found = [entry for entry in entries if not entry.name.startswith(".") and not _BESIDE.match(entry.name)]
    names = sorted((entry.name for entry in found), key=os.fsencode)
    suffixes = {os.path.splitext(name)[1].lower() for name in names}
    if len(suffixes) != 1 or suffixes.isdisjoint(_SUFFIXES) or any(entry.is_dir() for entry in found):
        return []
    splits = list(dict.fromkeys(map(_split_of, names)))
    if len(splits) > 1:
        raise _several_splits(folder, names, splits)
    return [os.path.join(folder, name) for name in names]


def _split_of(name: str) -> str | None:
    """The split that a file's name speaks of, as the Hub's names do; None where it does not."""
    stem = os.path.splitext(name)[0]
    found = _SPLIT.match(stem) or _SHARD.match(stem)
    return None if found is None else found["split"]


def _several_splits(folder: str, names: Sequence[str], splits: Sequence[str | None]) -> UsageError:
    suffix = os.path.splitext(names[0])[1]
    named = [split for split in splits if split is not None]
    others = " and files of none" if None in splits else ""
    return UsageError(
        f"{folder}: expected the files of one split, got those of {', '.join(named)}{others}. Open one of them: "
        f"{os.path.join(folder, f'{named[0]}*{suffix}')}"
    )
