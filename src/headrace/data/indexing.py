"""Builds the index of one tar: a scan of its headers gives its members, and these are grouped into samples."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from .._core import group_members, scan_tar
from ..errors import DatasetError, ReadError
from .index import TarIndex
from .members import Members
from .names import NameTable
from .safetensors import Arrays
from .strings import StringColumn
from .tar_members import TarMembers

UNGROUPED = "ungrouped"
"""In place of the samples' outline: why the members make none."""


def build_index(path: str) -> tuple[Arrays, str]:
    """Members and samples as arrays, and the outline of the samples.

    Raises ReadError, or DatasetError if it is no tar, is damaged, or is beyond a limit.
    """
    members, skipped = _scan(path)
    try:
        samples, outline = _group(members, skipped).to_arrays()
    except ValueError as error:
        samples, outline = {}, json.dumps({UNGROUPED: str(error)})
    return members.to_arrays() | samples, outline


def _scan(path: str) -> tuple[TarMembers, dict[str, int]]:
    try:
        names, name_offsets, kind, offset, size, check, links, link_offsets, link_of, skipped = scan_tar(
            os.fsencode(path)
        )
    except OSError as error:
        raise ReadError(f"{error}. Check the file's permissions and the disk") from error
    except ValueError as error:
        raise DatasetError(f"{error}. Check it with `tar -tf`, and copy or write it again") from error
    table = NameTable.build(StringColumn(names, name_offsets))
    return TarMembers(table, kind, offset, size, check, StringColumn(links, link_offsets), link_of), skipped


def _group(members: TarMembers, skipped: Mapping[str, int]) -> TarIndex:
    """Raises ValueError beyond the limit of extensions."""
    names = members.names.strings
    keys, key_offsets, sample_of, extension_of, extensions, folders, folder_offsets, folder_of, passed = group_members(
        names.blob, names.offsets, members.type
    )
    ranges = Members(members.offset, members.size, members.check)
    columns = _spread(ranges, sample_of, len(folder_of), extension_of, extensions)
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
