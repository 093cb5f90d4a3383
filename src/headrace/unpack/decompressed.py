"""A file that is compressed as a whole, read from its beginning to its end."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from importlib import import_module
from typing import Any

from headrace.data.compressed import decompress_command
from headrace.errors import DatasetError, ReadError


def open_decompressed(path: str, compression: str) -> Any:
    """A binary file of what `path` holds, which `compression` names. Raises ReadError, or DatasetError if nothing that
    is installed opens it."""
    opener = _find_opener(compression)
    if opener is None:
        hint = " with pip install backports.zstd, or" if compression == "zstd" else ""
        raise DatasetError(
            f"{path}: it is compressed with {compression}, which nothing installed here opens. Open it{hint} with "
            f"{decompress_command(path, compression)}, and unpack what that makes"
        )
    try:
        return opener(path)
    except OSError as error:
        raise ReadError(f"{path}: could not be read: {error.strerror}. Check its permissions and the disk") from error


def _find_opener(compression: str) -> Callable[[str], Any] | None:
    match compression:
        case "gzip":
            return gzip.open
        case "bzip2":
            return bz2.open
        case "xz":
            return lzma.open
        case "zstd":
            return _find_zstd()
    return None


def _find_zstd() -> Callable[[str], Any] | None:
    """Of Python from 3.14 on, of its backport, or Arrow's."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            opener: Callable[[str], Any] = import_module(name).open
        except ImportError:
            continue
        return opener
    try:
        arrow = import_module("pyarrow")
    except ImportError:
        return None
    return lambda path: arrow.input_stream(path, compression="zstd")
