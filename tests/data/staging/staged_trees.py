"""A folder as people have them, to be staged, and what must come of it."""

from __future__ import annotations

import os
import random
from pathlib import Path

from headrace.data.staging import StageReport, StageSource, sources_of, stage

PARTS = 3
"""Of the one large file, where parts are as small as `small_parts` makes them."""
PART_BYTES = 64 << 10


def make_source(root: Path) -> Path:
    """Small files, an empty one, a large one, an empty folder, names that are not UTF-8, a link to a file, one to a
    folder, and one that leads nowhere."""
    rng = random.Random(0)
    (root / "a" / "deep").mkdir(parents=True)
    (root / "empty").mkdir()
    for number in range(20):
        (root / "a" / f"{number}.bin").write_bytes(rng.randbytes(rng.randrange(5_000)))
    (root / "a" / "deep" / "none").write_bytes(b"")
    (root / "large").write_bytes(rng.randbytes(PARTS * PART_BYTES - 1_000))
    Path(os.fsdecode(os.fsencode(root) + b"/a/\xff\n.bin")).write_bytes(b"not UTF-8")
    (root / "private").write_bytes(b"mine")
    (root / "private").chmod(0o600)
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "far").write_bytes(b"far away")
    (root / "link").symlink_to(outside / "far")
    (root / "folder-link").symlink_to(outside)
    (root / "broken").symlink_to("nowhere")
    for path in [*root.rglob("*"), outside / "far"]:
        if path.is_file() and not path.is_symlink():
            os.utime(path, ns=(1, 1_700_000_000_123_456_789))
    return root


def expected(source: Path) -> dict[bytes, tuple[object, ...]]:
    """Of the source, by path in the folder of copies: what links lead to stands in their place."""
    found = {}
    for folder, folders, files in os.walk(os.fsencode(source), followlinks=True):
        for path in [os.path.join(folder, name) for name in files]:
            if os.path.exists(path):
                status = os.stat(path)
                with open(path, "rb") as file:
                    found[_name(source, path)] = (file.read(), status.st_mtime_ns, oct(status.st_mode & 0o777 | 0o600))
        for path in [folder, *(os.path.join(folder, name) for name in folders)]:
            found[_name(source, path)] = ("folder",)
    return found


def copies(to: Path, *, ours: bool = False) -> dict[bytes, tuple[object, ...]]:
    """What lies in the folder of copies, without our own folder there unless `ours`."""
    found = {}
    below = [
        os.path.join(folder, name) for folder, *found in os.walk(os.fsencode(to)) for names in found for name in names
    ]
    for path in below:
        name = os.path.relpath(path, os.fsencode(to))
        if not ours and name.startswith(b".headrace-stage"):
            continue
        assert not os.path.islink(path)
        if os.path.isdir(path):
            found[name] = ("folder",)
            continue
        with open(path, "rb") as file:
            status = os.stat(path)
            found[name] = (file.read(), status.st_mtime_ns, oct(status.st_mode & 0o777))
    return found


def stage_all(source: Path, to: Path, **options: object) -> StageReport:
    return stage(sources_of([str(source)]), to=str(to), threads=2, **options)  # type: ignore[arg-type]


def source_of(path: Path) -> StageSource:
    return sources_of([str(path)])[0]


def _name(source: Path, path: bytes) -> bytes:
    return os.path.relpath(path, os.fsencode(source.parent))
