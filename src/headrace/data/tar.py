"""Tars in the WebDataset layout as one table."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.data.archives.archive_table import ArchiveKind, open_archives
from headrace.data.class_names import Classes
from headrace.data.compressed import refuse_compressed
from headrace.data.index import TarIndex
from headrace.data.table import Table
from headrace.data.tar_data import TarData
from headrace.data.tar_sidecar import open_index


def open_tars(paths: Sequence[str], *, classes: Classes | None, cache: str | None) -> Table:
    """As `open_archives`. Raises ReadError, EmptyDatasetError, or DatasetError (compressed, damaged, not a tar)."""
    for path in paths:
        refuse_compressed(path)
    return open_archives(_TAR, paths, classes=classes, cache=cache)


def _open_index(path: str, cache: str | None) -> TarIndex:
    return open_index(path, cache=cache)


_TAR: ArchiveKind[TarIndex] = ArchiveKind(word="tar", listed_by="tar -tvf", open_index=_open_index, data_of=TarData.of)
