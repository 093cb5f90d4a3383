"""Builds the index of one tar: a scan of its headers gives its members, and these are grouped into samples."""

from __future__ import annotations

import json
import os
from typing import Any

from .._core import scan_tar
from ..errors import DatasetError, ReadError
from .archive_samples import ArchiveKeys
from .digest import digest_of
from .index import TarIndex
from .names import NameTable
from .safetensors import Arrays
from .samples import Samples
from .strings import StringColumn
from .tar_columns import samples_of, tar_columns, tar_files
from .tar_members import TarMembers

UNGROUPED = "ungrouped"
"""In place of the samples' outline: why the members make none."""


def build_index(path: str) -> tuple[Arrays, str]:
    """Members and samples as arrays, and the outline of the samples.

    Raises ReadError, or DatasetError if it is no tar, is damaged, or is beyond a limit.
    """
    members, skipped = _scan(path)
    try:
        samples = Samples.group(members.names.strings, members.type, skipped)
    except ValueError as error:
        return members.to_arrays(), json.dumps({UNGROUPED: str(error)})
    outline: dict[str, Any] = {**samples.outline(), "digest": _digest(path, TarIndex.of(members, samples))}
    return members.to_arrays() | samples.to_arrays(), json.dumps(outline)


def _scan(path: str) -> tuple[TarMembers, dict[str, int]]:
    try:
        names, name_offsets, kind, offset, size, check, links, link_offsets, link_of, skipped = scan_tar(
            os.fsencode(path)
        )
        table = NameTable.build(StringColumn(names, name_offsets))
    except OSError as error:
        raise ReadError(f"{error}. Check the file's permissions and the disk") from error
    except ValueError as error:
        raise DatasetError(f"{error}. Check it with `tar -tf`, and copy or write it again") from error
    return TarMembers(table, kind, offset, size, check, StringColumn(links, link_offsets), link_of), skipped


def _digest(path: str, index: TarIndex) -> str:
    """Kept, so that a state can name its dataset without a look at every sample."""
    samples = samples_of([index])
    return digest_of(ArchiveKeys(samples), tar_columns([index], tar_files([path]), samples))
