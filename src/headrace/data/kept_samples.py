"""An archive's samples as its sidecar keeps them: arrays, and an outline in JSON, or why its members make none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.data.archive_columns import MemberData, archive_columns, archive_files
from headrace.data.archives.archive_columns import ArchiveKeys, ArchiveSamples
from headrace.data.archives.archive_members import Samples
from headrace.data.digest import digest_of
from headrace.data.storage.safetensors import Arrays, InvalidFileError
from headrace.data.strings import StringColumn
from headrace.errors import DatasetError

_UNGROUPED = "ungrouped"
"""In place of the samples' outline: why the members make none."""


def keep_samples(
    path: str, names: StringColumn, types: npt.NDArray[np.uint8], skipped: Mapping[str, int], data: MemberData
) -> tuple[Arrays, str]:
    """The samples of the archive at `path`, whose members have tar's `types` and this `data`: arrays and outline."""
    try:
        samples = Samples.group(names, types, skipped)
    except ValueError as error:
        return {}, json.dumps({_UNGROUPED: str(error)})
    alone = ArchiveSamples((names,), (samples,))
    # Kept, so that a state can name its dataset without a look at every sample.
    digest = digest_of(ArchiveKeys(alone), archive_columns(alone, archive_files([path]), data))
    return samples.to_arrays(), json.dumps({**samples.outline(), "digest": digest})


def load_samples(path: str, arrays: Arrays, outline: str, *, members: int) -> tuple[Samples, str]:
    """What `keep_samples` made, and the digest of these samples alone, from untrusted input.

    Raises InvalidFileError unless all fits an archive of that many members, and DatasetError where its members make no
    samples.
    """
    known = _read(outline)
    if _UNGROUPED in known:
        raise DatasetError(
            f"{path}: {known[_UNGROUPED]}. An extension is what follows the first dot of a file name: rename members "
            f"so that their stems hold no dot"
        )
    digest = known.get("digest")
    if not isinstance(digest, str):
        raise InvalidFileError("the outline has no digest")
    return Samples.from_arrays(arrays, known, members), digest


def _read(outline: str) -> dict[str, Any]:
    try:
        known = json.loads(outline)
    except (ValueError, RecursionError) as error:
        raise InvalidFileError("the outline is not JSON") from error
    if not isinstance(known, dict):
        raise InvalidFileError("the outline is not a JSON object")
    return known
