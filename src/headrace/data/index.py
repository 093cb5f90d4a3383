"""The samples of one tar: which it holds, and where each of their members begins."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from . import checked
from .columns import ABSENT
from .members import Members
from .safetensors import Arrays, InvalidFileError
from .strings import StringColumn

_HEADER_BYTES = 512


@dataclass(frozen=True, eq=False)
class TarIndex:
    keys: StringColumn
    columns: Mapping[str, Members]
    """By extension, lower-case."""
    folders: StringColumn
    """First components of the keys, in order of first appearance."""
    folder_of: npt.NDArray[np.int32]
    """For each sample, into `folders`; -1: none."""
    skipped: Mapping[str, int]

    def to_arrays(self) -> tuple[Arrays, str]:
        """As named arrays, and a JSON text of what is not an array."""
        arrays: Arrays = {
            "keys.blob": self.keys.blob,
            "keys.offsets": self.keys.offsets,
            "folders.blob": self.folders.blob,
            "folders.offsets": self.folders.offsets,
            "folder_of": self.folder_of,
        }
        # Extensions need not be UTF-8, so arrays go by number.
        for number, column in enumerate(self.columns.values()):
            arrays |= {f"column.{number}.{part}": array for part, array in column._asdict().items()}
        return arrays, json.dumps({"extensions": list(self.columns), "skipped": dict(self.skipped)})

    @classmethod
    def from_arrays(cls, arrays: Arrays, outline: str, tar_bytes: int) -> TarIndex:
        """The inverse of `to_arrays`, from untrusted input: raises InvalidFileError unless all fits `tar_bytes`."""
        extensions, skipped = _read_outline(outline)
        keys = checked.strings(arrays, "keys")
        folders = checked.strings(arrays, "folders")
        folder_of = checked.array(arrays, "folder_of", np.int32, len(keys))
        if len(keys) and not (folder_of.min() >= -1 and folder_of.max() < len(folders)):
            raise InvalidFileError("folder_of is out of range")
        columns = {name: _column(arrays, number, len(keys), tar_bytes) for number, name in enumerate(extensions)}
        return cls(keys, columns, folders, folder_of, skipped)


def _read_outline(text: str) -> tuple[list[str], dict[str, int]]:
    try:
        outline = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidFileError("the outline is not JSON") from error
    match outline:
        case {"extensions": list(extensions), "skipped": dict(skipped)}:
            names_fit = all(isinstance(name, str) for name in extensions) and len(set(extensions)) == len(extensions)
            if names_fit and all(isinstance(count, int) for count in skipped.values()):
                return extensions, skipped
    raise InvalidFileError("the outline has another form")


def _column(arrays: Arrays, number: int, count: int, tar_bytes: int) -> Members:
    offset = checked.array(arrays, f"column.{number}.offset", np.int64, count)
    length = checked.array(arrays, f"column.{number}.length", np.int64, count)
    fits = checked.ranges_fit(offset, length, first=_HEADER_BYTES, end=tar_bytes)
    if not (fits | (length == ABSENT)).all():
        raise InvalidFileError(f"column {number} points outside the tar")
    return Members(offset, length, checked.array(arrays, f"column.{number}.check", np.uint32, count))
