"""The samples of one tar: which it holds, and where each of their members begins."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .safetensors import Arrays, InvalidFileError
from .samples import Samples
from .strings import StringColumn
from .tar_members import TarMembers


@dataclass(frozen=True, eq=False)
class TarIndex:
    samples: Samples
    names: StringColumn
    """Of all members of the tar, as each of the following arrays is."""
    offset: npt.NDArray[np.int64]
    """First byte of the data in the tar."""
    size: npt.NDArray[np.int64]
    check: npt.NDArray[np.uint32]
    """Identity of the header block before the data."""
    digest: str | None = None
    """`digest_of` these samples alone, where it is known."""

    @classmethod
    def of(cls, members: TarMembers, samples: Samples, digest: str | None = None) -> TarIndex:
        # Without the hash table: samples are not looked up by name.
        return cls(samples, members.names.strings, members.offset, members.size, members.check, digest)

    @classmethod
    def from_arrays(cls, arrays: Arrays, outline: str, tar_bytes: int) -> TarIndex:
        """What `build_index` made, from untrusted input: raises InvalidFileError unless all fits `tar_bytes`."""
        members = TarMembers.from_arrays(arrays, tar_bytes)
        known = read_outline(outline)
        digest = known.get("digest")
        if not isinstance(digest, str):
            raise InvalidFileError("the outline has no digest")
        return cls.of(members, Samples.from_arrays(arrays, known, len(members)), digest)


def read_outline(text: str) -> dict[str, Any]:
    """Raises InvalidFileError."""
    try:
        outline = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidFileError("the outline is not JSON") from error
    if not isinstance(outline, dict):
        raise InvalidFileError("the outline is not a JSON object")
    return outline
