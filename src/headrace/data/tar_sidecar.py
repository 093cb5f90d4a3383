"""The index of a tar, kept in a sidecar: one scan serves those who want samples and those who want members by name."""

from __future__ import annotations

from headrace.data.archives.tar_index import TarMembers
from headrace.data.identity import Identity, identify_archive
from headrace.data.index import TarIndex
from headrace.data.indexing import build_index
from headrace.data.storage.safetensors import Arrays
from headrace.data.storage.sidecar import Sidecar, open_sidecar

FORMAT = "headrace tar index 4"
"""Raise the number whenever the meaning of a sidecar changes: others are rebuilt."""


def open_index(path: str, *, cache: str | None) -> TarIndex:
    """The samples of the tar at `path`. Raises ReadError, or DatasetError if it is no tar or has no samples' form."""

    def load(arrays: Arrays, outline: str, tar_bytes: int) -> TarIndex:
        return TarIndex.from_arrays(path, arrays, outline, tar_bytes)

    identity = identify_archive(path)
    return open_sidecar(Sidecar(FORMAT, _build, load), path, identity, cache=cache)


def open_members(path: str, identity: Identity, *, cache: str | None) -> TarMembers:
    """Every member of the tar at `path`, which has this `identity`. Raises ReadError, or DatasetError if it is none."""

    def load(arrays: Arrays, _: str, tar_bytes: int) -> TarMembers:
        return TarMembers.from_arrays(arrays, tar_bytes)

    return open_sidecar(Sidecar(FORMAT, _build, load), path, identity, cache=cache)


def _build(path: str, _: str | None) -> tuple[Arrays, str]:
    """In memory, however large the archive is: a member takes less than a hundred bytes."""
    return build_index(path)
