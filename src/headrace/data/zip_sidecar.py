"""The index of a zip, kept in a sidecar so that its central directory is parsed once."""

from __future__ import annotations

import os

from ..errors import DatasetError, ReadError
from .identity import Identity
from .safetensors import Arrays
from .sidecar import Sidecar, open_sidecar
from .zip_members import ZipMembers

FORMAT = "headrace zip index 2"
"""Raise the number whenever the meaning of a sidecar changes: others are rebuilt."""


def open_members(path: str, identity: Identity, *, cache: str | None) -> ZipMembers:
    """Every member of the zip at `path`, which has this `identity`. Raises ReadError, or DatasetError if it is none."""

    def load(arrays: Arrays, _: str, zip_bytes: int) -> ZipMembers:
        return ZipMembers.from_arrays(arrays, zip_bytes)

    return open_sidecar(Sidecar(FORMAT, build_index, load), path, identity, cache=cache)


def build_index(path: str) -> tuple[Arrays, str]:
    """The central directory as arrays. Raises ReadError or DatasetError."""
    try:
        members = ZipMembers.read(path)
    except OSError as error:
        raise ReadError(f"{error}. Check its permissions and the disk") from error
    except ValueError as error:
        raise DatasetError(f"{error}. Check it with `unzip -t`, and copy or write it again") from error
    if not members.fit(os.path.getsize(path)):
        raise DatasetError(
            f"{path}: its central directory points outside the file. Check it with `unzip -t`, and copy or write it "
            f"again"
        )
    return members.to_arrays(), ""
