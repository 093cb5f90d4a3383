"""Builds the index of one tar: a scan of its headers, then members grouped into samples."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from .._core import group_members, scan_tar
from ..errors import DatasetError, ReadError
from .index import TarIndex
from .members import Members
from .strings import StringColumn


def build_index(path: str) -> TarIndex:
    """Scans a tar. Raises ReadError, or DatasetError if it is no tar, is damaged, or is beyond a limit."""
    names, members, skipped = _scan(path)
    try:
        keys, key_offsets, sample_of, extension_of, extensions, folders, folder_offsets, folder_of, passed = (
            group_members(names.blob, names.offsets)
        )
    except ValueError as error:
        raise DatasetError(
            f"{path}: {error}. An extension is what follows the first dot of a file name: rename members so that "
            f"their stems hold no dot"
        ) from error
    columns = _spread(members, sample_of, len(folder_of), extension_of, extensions)
    used = sum(int(np.count_nonzero(column.present)) for column in columns.values())
    duplicates = int(np.count_nonzero(sample_of >= 0)) - used
    counts = {**skipped, **passed, "duplicate members": duplicates}
    return TarIndex(
        StringColumn(keys, key_offsets),
        columns,
        StringColumn(folders, folder_offsets),
        folder_of,
        {what: count for what, count in counts.items() if count},
    )


def _scan(path: str) -> tuple[StringColumn, Members, dict[str, int]]:
    try:
        names, name_offsets, offset, length, check, skipped = scan_tar(os.fsencode(path))
    except OSError as error:
        raise ReadError(f"{error}. Check the file's permissions and the disk") from error
    except ValueError as error:
        raise DatasetError(f"{error}. Check it with `tar -tf`, and copy or write it again") from error
    return StringColumn(names, name_offsets), Members(offset, length, check), skipped


def _spread(
    members: Members,
    sample_of: npt.NDArray[np.int64],
    samples: int,
    extension_of: npt.NDArray[np.int32],
    extensions: list[bytes],
) -> dict[str, Members]:
    """Members of all extensions together, to an entry a sample for each extension."""
    columns = {}
    for number, extension in enumerate(extensions):
        those = np.flatnonzero(extension_of == number)
        columns[extension.decode("utf-8", "surrogateescape")] = members.take(those).spread(sample_of[those], samples)
    return columns
