"""The files of the demo's data set: JPEGs in class folders, written once and kept in the cache folder."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PIL import Image

from headrace.data.storage.sidecar import cache_folder
from headrace.demo.cuts import Cut, draw_cuts
from headrace.tools.demo_dataset import Source

VERSION = 1  # goes up when the same source and seed give other files
PHOTOGRAPHS_AT_MOST = 40  # held in memory at up to 20 MB each
QUALITIES = (93, 95, 96, 97, 98)
BYTES_AT_500_BY_375 = 70e3  # what ImageNet's files have; quality is raised until a file reaches it


def cached_path(source: Source, count: int) -> Path:
    """Where the data set of `count` files from this source is kept; other photographs give another place."""
    parts = [str(VERSION), source.origin]
    for path in source.files or ():
        status = path.stat()
        parts.append(f"{path} {status.st_size} {status.st_mtime_ns}")
    name = hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return Path(cache_folder(), "demo", f"{count}-{name}")


def write_dataset(
    photographs: Sequence[Image.Image], out: Path, count: int, *, classes: int = 20, seed: int = 0
) -> Iterator[int]:
    """Write `count` JPEGs below `out` as CLASS/NUMBER.jpg, and yield each file's bytes as it is done.

    `out` appears whole or not at all: the files are written beside it, then moved into place.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        yield from _write_all(
            photographs, unfinished, draw_cuts([p.size for p in photographs], count, seed=seed), classes
        )
        unfinished.chmod(0o755)
        unfinished.rename(out)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _write_all(photographs: Sequence[Image.Image], folder: Path, cuts: Sequence[Cut], classes: int) -> Iterator[int]:
    def write(index: int) -> int:
        cut = cuts[index]
        data = encode(photographs[cut.photograph].resize(cut.size, Image.Resampling.LANCZOS, box=cut.window))
        return (folder / f"{index % classes:03d}" / f"{index:05d}.jpg").write_bytes(data)

    for number in range(min(classes, len(cuts))):
        (folder / f"{number:03d}").mkdir()
    with ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="headrace-demo") as pool:
        yield from pool.map(write, range(len(cuts)))


def encode(image: Image.Image) -> bytes:
    """Encode as a 4:2:0 JPEG at the lowest of the qualities that gives a file as many bytes as ImageNet's."""
    enough = BYTES_AT_500_BY_375 * image.width * image.height / (500 * 375)
    for quality in QUALITIES:
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=quality, subsampling="4:2:0")
        if buffer.tell() > enough:
            break
    return buffer.getvalue()
