"""The index of a zip, kept in a sidecar: it serves those who want samples and those who want members by name."""

from __future__ import annotations

import os

import numpy as np

from headrace.data.archives.zip_index import ZipMembers, are_folders
from headrace.data.identity import Identity, identify_archive
from headrace.data.kept_samples import keep_samples
from headrace.data.storage.safetensors import Arrays
from headrace.data.storage.sidecar import Sidecar, open_sidecar
from headrace.data.zip_data import ZipData
from headrace.data.zip_index import ZipIndex
from headrace.errors import DatasetError, ReadError

FORMAT = "headrace zip index 3"
"""Raise the number whenever the meaning of a sidecar changes: others are rebuilt."""


def open_index(path: str, *, cache: str | None) -> ZipIndex:
    """The samples of the zip at `path`. Raises ReadError, or DatasetError if it is no zip or has no samples' form."""

    def load(arrays: Arrays, outline: str, zip_bytes: int) -> ZipIndex:
        return ZipIndex.from_arrays(path, arrays, outline, zip_bytes)

    identity = identify_archive(path)
    return open_sidecar(Sidecar(FORMAT, _build, load), path, identity, cache=cache)


def open_members(path: str, identity: Identity, *, cache: str | None) -> ZipMembers:
    """Every member of the zip at `path`, which has this `identity`. Raises ReadError, or DatasetError if it is none."""

    def load(arrays: Arrays, _: str, zip_bytes: int) -> ZipMembers:
        return ZipMembers.from_arrays(arrays, zip_bytes)

    return open_sidecar(Sidecar(FORMAT, _build, load), path, identity, cache=cache)


def build_index(path: str) -> tuple[Arrays, str]:
    """The central directory and its samples as arrays, and the samples' outline. Raises ReadError or DatasetError."""
    members = _read(path)
    names = members.names.strings
    is_folder = are_folders(names)
    types = np.where(is_folder, _FOLDER, _FILE)
    skipped = {"directories": int(np.count_nonzero(is_folder))}
    samples, outline = keep_samples(path, names, types, skipped, ZipData.of([members]))
    return members.to_arrays() | samples, outline


_FILE, _FOLDER = np.uint8(ord("0")), np.uint8(ord("5"))
"""As a tar has it, which the layout of samples is made for."""


def _read(path: str) -> ZipMembers:
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
    return members


def _build(path: str, _: str | None) -> tuple[Arrays, str]:
    """In memory, however large the archive is: a member takes less than a hundred bytes."""
    return build_index(path)
