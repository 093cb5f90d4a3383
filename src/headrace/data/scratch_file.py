"""Unnamed files, for what is longer than memory should have to be."""

from __future__ import annotations

import tempfile
from typing import IO

from headrace.data.partial_file import UnwritableError
from headrace.errors import DatasetError

_PREFIX = ".headrace."  # where a file system knows no unnamed files, it has a name for a moment


def scratch_file(folder: str | None) -> IO[bytes]:
    """A file without a name and without a buffer, so that a full disk is noticed by whoever writes; gone once it is
    closed, and with the process. In `folder`; None: where the system has temporary files, which may be in memory.

    Raises UnwritableError, or DatasetError where `folder` is None.
    """
    try:
        return tempfile.TemporaryFile(buffering=0, dir=folder, prefix=_PREFIX)
    except OSError as error:
        raise no_room(folder, error) from error


def no_room(folder: str | None, error: OSError) -> UnwritableError | DatasetError:
    """What `scratch_file` raises, for an error of writing to what it returned."""
    if folder is not None:
        return UnwritableError(error.strerror or str(error))
    return DatasetError(
        f"{tempfile.gettempdir()}: expected a folder for temporary files with room for an index, got: "
        f"{error.strerror}. Free some, or set TMPDIR to another folder"
    )
