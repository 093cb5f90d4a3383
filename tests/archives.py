"""Archives for the tests of IndexedTar and IndexedZip, made by the standard library."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from archive_workers import content_of

NAMES = [f"scene{i % 9}/{'deep/' * (i % 3)}frame_{i:04d}" + (".png" if i % 4 else "") for i in range(300)]


def write_tar(path: Path, names: Iterable[str] = NAMES, format: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, "w", format=format) as tar:
        for name in names:
            add_file(tar, name, content_of(name))
    return path


def add_file(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def add_link(tar: tarfile.TarFile, name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    tar.addfile(info)


def write_zip(path: Path, names: Iterable[str] = NAMES, compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name in names:
            archive.writestr(name, content_of(name))
    return path
