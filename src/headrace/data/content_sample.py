"""A look at what files hold, where their sizes and times are equal and tell nothing."""

from __future__ import annotations

import hashlib

import numpy as np

from headrace.data.columns import ByteColumn, Location
from headrace.data.storage.open_file import OpenFile
from headrace.errors import HeadraceError

_LOOKED_AT = 16
"""Samples: each is an opened file, and on a network file system a few round trips."""
_PIECE_BYTES = 4096


def content_sample(count: int, files: ByteColumn) -> list[str | None]:
    """Digests of a few KiB from the beginning, the middle and the end of samples spread over all `count`; None for one
    that cannot be read.

    Files that a build or an archive made, such as arrays and uncompressed images of one size, may agree in names, sizes
    and times, and hold something else.
    """
    at = files.locate(np.unique(np.linspace(0, count - 1, _LOOKED_AT).astype(np.int64)))
    starts = [0] * len(at.path_id) if at.offset is None else at.offset.tolist()
    lengths = [None] * len(at.path_id) if at.length is None else at.length.tolist()
    return [
        _digest(files, at, row, start, length) for row, (start, length) in enumerate(zip(starts, lengths, strict=True))
    ]


def _digest(files: ByteColumn, at: Location, row: int, start: int, length: int | None) -> str | None:
    if length is not None and length < 0:
        return None
    try:
        file = OpenFile(files.path(at, row))
        length = file.size() if length is None else length
        looked_at = dict.fromkeys((0, max(0, length // 2), max(0, length - _PIECE_BYTES)))
        pieces = b"".join(file.read(start + place, min(_PIECE_BYTES, length - place)) for place in looked_at)
    except HeadraceError:
        return None
    return hashlib.blake2b(pieces, digest_size=8).hexdigest()
