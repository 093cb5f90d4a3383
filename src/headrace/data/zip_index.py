"""The samples of one zip: which it holds, and where each of their members lies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.data.archives.archive_members import Samples
from headrace.data.archives.zip_index import ZipMembers
from headrace.data.kept_samples import load_samples
from headrace.data.storage.safetensors import Arrays
from headrace.data.strings import StringColumn

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class ZipIndex:
    samples: Samples
    digest: str
    """`digest_of` these samples alone."""
    names: StringColumn
    """Of all members of the zip, as each of the following arrays is: see `ZipMembers`."""
    offset: Ints
    size: Ints
    packed: Ints
    end: Ints
    method: Words
    crc: Words
    flags: Words
    check: Words

    @classmethod
    def from_arrays(cls, path: str, arrays: Arrays, outline: str, zip_bytes: int) -> ZipIndex:
        """What `build_index` made of the zip at `path`, from untrusted input.

        Raises InvalidFileError unless all fits `zip_bytes`, and DatasetError where its members make no samples.
        """
        members = ZipMembers.from_arrays(arrays, zip_bytes)
        samples, digest = load_samples(path, arrays, outline, members=len(members))
        # Without the hash table: samples are not looked up by name.
        return cls(
            samples,
            digest,
            members.names.strings,
            members.offset,
            members.size,
            members.packed,
            members.end,
            members.method,
            members.crc,
            members.flags,
            members.check,
        )
