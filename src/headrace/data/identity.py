"""What a file is known by, without reading it all: its size and a hash of samples of its content."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass

from headrace.data.storage.open_file import OpenFile

_END_SAMPLE_BYTES = 1 << 16
_MIDDLE_SAMPLES, _MIDDLE_SAMPLE_BYTES = 6, 1 << 12
_WHOLE_BYTES, _PIECE_BYTES = 1 << 24, 1 << 18


@dataclass(frozen=True)
class Identity:
    bytes: int
    sample: str

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


def identify(file: OpenFile) -> Identity:
    """Raises ReadError."""
    size = file.size()
    state = hashlib.blake2b(digest_size=16)
    for at, length in _sampled_ranges(size):
        state.update(file.read(at, length))
    return Identity(size, state.hexdigest())


def identify_archive(path: str) -> Identity:
    """Of the file that lies there now. Raises ReadError."""
    return identify(OpenFile(os.fsencode(path)))


def identify_closely(file: OpenFile) -> Identity:
    """For files that change in places, as a list that is corrected by hand does: nothing else would notice later.

    Up to 16 MiB all of the content counts. Beyond, the moment does at which the system last saw it change (which, other
    than the time of modification, nobody sets), and so a copy is another file. Raises ReadError.
    """
    size = file.size()
    if size <= _WHOLE_BYTES:
        state = hashlib.blake2b(digest_size=16)
        for at in range(0, size, _PIECE_BYTES):
            state.update(file.read(at, _PIECE_BYTES))
        return Identity(size, state.hexdigest())
    sampled, status = identify(file), file.status()
    known = json.dumps([sampled.sample, status.st_ctime_ns, status.st_mtime_ns, status.st_ino])
    return Identity(size, hashlib.blake2b(known.encode(), digest_size=16).hexdigest())


def _sampled_ranges(size: int) -> list[tuple[int, int]]:
    """The first and last 64 KiB, and six pieces evenly between."""
    step = size // (_MIDDLE_SAMPLES + 1)
    middle = [(step * (i + 1), _MIDDLE_SAMPLE_BYTES) for i in range(_MIDDLE_SAMPLES)]
    return [(0, _END_SAMPLE_BYTES), *middle, (max(0, size - _END_SAMPLE_BYTES), _END_SAMPLE_BYTES)]
