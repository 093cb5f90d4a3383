"""Archives for the tests of unpacking, made by the standard library, which shares no code with what unpacks them."""

from __future__ import annotations

import io
import random
import stat
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

MTIME = 1_600_000_000


def file(name: str, content: bytes = b"", *, mode: int = 0o644, mtime: float = MTIME) -> tuple[tarfile.TarInfo, bytes]:
    return _info(name, tarfile.REGTYPE, mode=mode, mtime=mtime, size=len(content)), content


def folder(name: str, *, mode: int = 0o755, mtime: float = MTIME) -> tuple[tarfile.TarInfo, bytes]:
    return _info(name, tarfile.DIRTYPE, mode=mode, mtime=mtime), b""


def symbolic_link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return _info(name, tarfile.SYMTYPE, linkname=target, mode=0o777, mtime=MTIME), b""


def hard_link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return _info(name, tarfile.LNKTYPE, linkname=target, mtime=MTIME), b""


def special(name: str, kind: bytes) -> tuple[tarfile.TarInfo, bytes]:
    return _info(name, kind, mtime=MTIME), b""


def write_tar(
    path: Path, members: Iterable[tuple[tarfile.TarInfo, bytes]], format: int = tarfile.PAX_FORMAT, how: str = "w"
) -> Path:
    """`how`: tarfile's mode, such as "w:gz"."""
    with tarfile.open(path, how, format=format, errors="surrogateescape") as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return path


def write_zip(
    path: Path,
    members: Iterable[tuple[str, bytes]],
    *,
    mode: int = 0o100644,
    compression: int = zipfile.ZIP_DEFLATED,
) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members:
            archive.writestr(zip_info(name, mode=mode, compression=compression), content)
    return path


def zip_info(name: str, *, mode: int = 0o100644, compression: int = zipfile.ZIP_STORED) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, date_time=(2021, 3, 4, 5, 6, 8))
    info.compress_type = compression
    info.external_attr = (stat.S_IFDIR | 0o755 if name.endswith("/") else mode) << 16
    return info


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def ordinary(*, seed: int = 0, files: int = 40) -> list[tuple[tarfile.TarInfo, bytes]]:
    """Folders, files of many sizes and times, and both kinds of links."""
    rng = random.Random(seed)
    sizes = [0, 1, 511, 512, 513, 3_000, 78_000]
    members = [folder("data", mtime=MTIME - 5)]
    for number in range(files):
        content = noise(sizes[number % len(sizes)] + number // 7, seed=seed + number)
        name = f"data/class{number % 3}/{'deeper/' * (number % 4)}{number:03d}.bin"
        members.append(file(name, content, mode=rng.choice([0o644, 0o600, 0o755, 0o444]), mtime=MTIME + number))
    members += [
        folder("data/empty", mtime=MTIME + 7.25),
        symbolic_link("data/first", "class0/000.bin"),
        symbolic_link("data/class0/up", "../class1"),
        hard_link("data/again", "data/class0/000.bin"),  # of the same time, as both are of one file
    ]
    return members


def _info(name: str, kind: bytes, **values: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    for key, value in values.items():
        setattr(info, key, value)
    return info
