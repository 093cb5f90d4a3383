"""Which files the peer reads: an independent listing of a folder's or a tar's images, in the order of their paths."""

from __future__ import annotations

import os
import tarfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from PIL import Image

from headrace.data.patterns import expand
from headrace.errors import DatasetError, EmptyDatasetError


@dataclass(frozen=True)
class Listing:
    """Images as (place, name): a file and None, or a tar and its member's name."""

    files: tuple[tuple[str, str | None], ...]

    def __len__(self) -> int:
        return len(self.files)


def list_images(where: str) -> Listing:
    """List the images of a folder, a tar, or a pattern of tars, by their names' endings.

    Raises EmptyDatasetError where there is none, DatasetError where a file is no tar.
    """
    Image.init()
    endings = frozenset(Image.EXTENSION)
    if os.path.isdir(where):
        files = _in_folder(Path(where), endings)
    else:
        tars = [where] if os.path.isfile(where) else expand(where)
        files = [found for tar in tars for found in _in_tar(tar, endings)]
    if not files:
        raise EmptyDatasetError(
            f"expected images to compare on in {where}; none is there. Give a folder or a tar of them."
        )
    return Listing(tuple(files))


def _in_folder(folder: Path, endings: frozenset[str]) -> list[tuple[str, str | None]]:
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in endings and path.is_file())
    return [(str(path), None) for path in paths]


def _in_tar(path: str, endings: frozenset[str]) -> list[tuple[str, str | None]]:
    try:
        with tarfile.open(path, "r:") as tar:
            members = [member.name for member in tar if member.isfile()]
    except tarfile.ReadError as error:
        raise DatasetError(
            f"{path}: expected a folder of images or an uncompressed tar to compare on, got another file ({error}). "
            "Give the folder or the tar that holds the images."
        ) from error
    return [(path, name) for name in members if PurePosixPath(name).suffix.lower() in endings]
