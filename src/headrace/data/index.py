"""The samples of one tar: which it holds, and where each of their members begins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.data.archives.archive_members import Samples
from headrace.data.archives.tar_index import TarMembers
from headrace.data.kept_samples import load_samples
from headrace.data.storage.safetensors import Arrays
from headrace.data.strings import StringColumn


@dataclass(frozen=True, eq=False)
class TarIndex:
    samples: Samples
    digest: str
    """`digest_of` these samples alone."""
    names: StringColumn
    """Of all members of the tar, as each of the following arrays is."""
    offset: npt.NDArray[np.int64]
    """First byte of the data in the tar."""
    size: npt.NDArray[np.int64]
    check: npt.NDArray[np.uint32]
    """Identity of the header block before the data."""

    @classmethod
    def from_arrays(cls, path: str, arrays: Arrays, outline: str, tar_bytes: int) -> TarIndex:
        """What `build_index` made of the tar at `path`, from untrusted input.

        Raises InvalidFileError unless all fits `tar_bytes`, and DatasetError where its members make no samples.
        """
        members = TarMembers.from_arrays(arrays, tar_bytes)
        samples, digest = load_samples(path, arrays, outline, members=len(members))
        # Without the hash table: samples are not looked up by name.
        return cls(samples, digest, members.names.strings, members.offset, members.size, members.check)
