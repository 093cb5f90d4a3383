"""Zips in the WebDataset layout as one table."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.data.archives.archive_table import ArchiveKind, open_archives
from headrace.data.class_names import Classes
from headrace.data.table import Table
from headrace.data.zip_data import ZipData
from headrace.data.zip_index import ZipIndex
from headrace.data.zip_sidecar import open_index


def open_zips(paths: Sequence[str], *, classes: Classes | None, cache: str | None) -> Table:
    """As `open_archives`. Raises ReadError, EmptyDatasetError, or DatasetError (damaged, split, not a zip)."""
    return open_archives(_ZIP, paths, classes=classes, cache=cache)


def _open_index(path: str, cache: str | None) -> ZipIndex:
    return open_index(path, cache=cache)


_ZIP: ArchiveKind[ZipIndex] = ArchiveKind(word="zip", listed_by="unzip -l", open_index=_open_index, data_of=ZipData.of)
