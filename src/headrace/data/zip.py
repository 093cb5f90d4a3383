"""Zips in the WebDataset layout as one table."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import UsageError
from .archive_table import ArchiveKind, open_archives
from .table import Table
from .zip_data import ZipData
from .zip_index import ZipIndex
from .zip_sidecar import open_index

_SUFFIX = ".zip"
_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")
"""Of a first member, and of the end of a zip that has none."""


def are_zips(paths: Sequence[str]) -> bool:
    """Whether all are zips rather than tars. Raises UsageError where only some are."""
    zips = [_is_zip(path) for path in paths]
    if any(zips) and not all(zips):
        raise UsageError(
            f"expected tars alone or zips alone, got the zip {paths[zips.index(True)]} and the tar "
            f"{paths[zips.index(False)]}. Open them apart"
        )
    return any(zips)


def _is_zip(path: str) -> bool:
    """Whether a file is named as a zip is, or begins as one does."""
    if path.lower().endswith(_SUFFIX):
        return True
    try:
        with open(path, "rb") as file:
            return file.read(4) in _MAGIC
    except OSError:
        return False  # the index reports it, with its cause


def open_zips(paths: Sequence[str], *, classes: bool, cache: str | None) -> Table:
    """As `open_archives`. Raises ReadError, EmptyDatasetError, or DatasetError (damaged, split, not a zip)."""
    return open_archives(_ZIP, paths, classes=classes, cache=cache)


def _open_index(path: str, cache: str | None) -> ZipIndex:
    return open_index(path, cache=cache)


_ZIP: ArchiveKind[ZipIndex] = ArchiveKind(word="zip", listed_by="unzip -l", open_index=_open_index, data_of=ZipData.of)
