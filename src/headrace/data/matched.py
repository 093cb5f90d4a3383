"""Folders whose files belong together by their stems: an image, its mask, its depth."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.data.columns import Column, FileColumn
from headrace.data.files import Files
from headrace.data.stems import StemmedFiles, stemmed_files
from headrace.data.strings import StringColumn
from headrace.data.table import Table
from headrace.errors import DatasetError, UsageError

_EXAMPLES = 3


def open_matched(columns: Mapping[str, str]) -> Table:
    """One sample for each stem that every column has; the first column's order. `columns` maps names to folders or
    patterns; a sample's key is its stem.

    Raises UsageError, NotFoundError, EmptyDatasetError, ReadError, or DatasetError where stems are double or nothing
    matches.
    """
    if not columns:
        raise UsageError("expected folders or patterns by the names of columns, got an empty mapping")
    found = {name: stemmed_files(where) for name, where in columns.items()}
    first = next(iter(found.values()))
    shared = set(first.name_of).intersection(*(files.name_of for files in found.values()))
    if not shared:
        raise DatasetError(_nothing_matches(found))
    stems = [stem for stem in first.name_of if stem in shared]
    parts: dict[str, Column] = {name: FileColumn(_files(files, stems)) for name, files in found.items()}
    source = ", ".join(f"{name} {where}" for name, where in columns.items())
    return Table(source, StringColumn.from_list(stems), parts, _unmatched(found, len(shared)))


def _files(files: StemmedFiles, stems: list[str]) -> Files:
    return Files(files.root, StringColumn.from_list(files.name_of[stem] for stem in stems), archives=False)


def _unmatched(found: Mapping[str, StemmedFiles], samples: int) -> dict[str, int]:
    counts = {f"{name} without a match": len(files.name_of) - samples for name, files in found.items()}
    return {what: count for what, count in counts.items() if count}


def _nothing_matches(found: Mapping[str, StemmedFiles]) -> str:
    stems = "; ".join(f"{name}: {', '.join(list(files.name_of)[:_EXAMPLES])}" for name, files in found.items())
    return (
        f"expected files of the same stems for {' and '.join(found)}, got none in common ({stems}). "
        f"Give patterns whose wildcards stand for the common part, such as 'masks/*_mask.png'"
    )
