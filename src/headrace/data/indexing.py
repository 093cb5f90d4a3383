"""Builds the index of one tar: a scan of its headers gives its members, and these are grouped into samples."""

from __future__ import annotations

import os

from headrace._core import scan_tar
from headrace.data.archives.tar_index import TarMembers
from headrace.data.kept_samples import keep_samples
from headrace.data.names import NameTable
from headrace.data.storage.safetensors import Arrays
from headrace.data.strings import StringColumn
from headrace.data.tar_data import TarData
from headrace.errors import DatasetError, ReadError


def build_index(path: str) -> tuple[Arrays, str]:
    """Members and samples as arrays, and the outline of the samples.

    Raises ReadError, or DatasetError if it is no tar, is damaged, or is beyond a limit.
    """
    members, skipped = _scan(path)
    samples, outline = keep_samples(path, members.names.strings, members.type, skipped, TarData.of([members]))
    return members.to_arrays() | samples, outline


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
