"""Damaged files through the loader's own paths: each gives a named error or what is right, soon and in little memory.

    python tests/damaged_corpus.py jpeg|png|tar [COUNT [FIRST]]

prints what came of cases FIRST to FIRST + COUNT, the slowest of them, and the most memory that the process has had
while it took them.
"""

from __future__ import annotations

import faulthandler
import hashlib
import io
import json
import os
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from damage import damaged, sign_png, sign_tar
from originals import jpegs, pngs, tars
from PIL import Image

import headrace as hr
from headrace._core import scan_tar
from headrace.errors import HeadraceError

HANG_S = 60.0
"""What takes longer hangs, on however busy a machine."""
PROGRESSIVE = b"\xff\xc2"
"""The marker that begins such a JPEG's frame."""
SIZES = ((1, 1), (17, 33), (160, 120), (500, 375))
SMALL_SIZES = ((1, 1), (17, 33), (60, 40))
"""Of PNGs, whose rows are filtered in Python."""

Members = list[tuple[str, int, int]]
"""Name, offset and size of each regular file of a tar."""


@dataclass(frozen=True)
class Kind:
    originals: Callable[[], Iterator[tuple[str, bytes]]]
    take: Callable[[bytes], str]
    """What the loader makes of a file, as a text. Raises HeadraceError."""
    judge: Callable[[bytes, str], str]
    """From the file and that text: what it is called. AssertionError where it is wrong."""
    sign: Callable[[bytes], bytes]
    """Makes checksums right, for half of the cases."""


@cache
def sources(kind: str) -> list[bytes]:
    return [data for _, data in KINDS[kind].originals()]


def case(kind: str, number: int) -> bytes:
    """Damaged file `number` of its kind."""
    rng = np.random.default_rng([number, len(kind)])
    file = damaged(sources(kind)[number % len(sources(kind))], sources(kind), rng)
    return KINDS[kind].sign(file) if number % 2 else file


def judge_all(kind: str, count: int, first: int = 0) -> dict[str, object]:
    """Outcomes by name, the wrong ones, the slowest case, and the most memory the process has had by the last one."""
    numbers = range(first, first + count)
    taken, slowest = [], (0.0, -1)
    for number in numbers:
        file = case(kind, number)
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        began = time.perf_counter()
        taken.append(_take(kind, file))
        slowest = max(slowest, (time.perf_counter() - began, number))
        faulthandler.cancel_dump_traceback_later()
    peak_mb = _peak_kb() // 1024  # the judges' own memory does not count
    outcomes: Counter[str] = Counter()
    wrong = []
    for number, (name, made) in zip(numbers, taken, strict=True):
        try:
            outcomes[name if made is None else KINDS[kind].judge(case(kind, number), made)] += 1
        except AssertionError as error:
            wrong.append(f"{kind} {number}: {error}")
    return {
        "outcomes": dict(outcomes.most_common()),
        "wrong": wrong,
        "slowest_s": round(slowest[0], 3),
        "slowest": slowest[1],
        "peak_mb": peak_mb,
    }


def _peak_kb() -> int:
    """Of this program; `ru_maxrss` would count the process that it was started from."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")))


def _take(kind: str, file: bytes) -> tuple[str, str | None]:
    """An error's name and nothing, or "" and what was made. Errors that are not Headrace's own pass."""
    try:
        return "", KINDS[kind].take(file)
    except HeadraceError as error:
        return type(error).__name__, None


# --- images ---


def take_image(file: bytes) -> str:
    """The whole; and a window of it first, which may be sound where the whole is not."""
    try:
        window = hr.decode_image(file, output="numpy", exif=False, view=hr.RandomResizedCrop((24, 24)), rng=1)
        assert window.shape == (24, 24, 3)
    except HeadraceError:
        pass
    return _digest(hr.decode_image(file, output="numpy", exif=False))


def judge_image(file: bytes, made: str) -> str:
    references = [pixels for pixels in (pillow_rgb(file), opencv_rgb(file)) if pixels is not None]
    if not references:
        return "image that others refuse"
    if made in map(_digest, references):
        return "image"
    # They guess at what unfinished scans have left out; the core, as libjpeg where it is asked not to, does not.
    assert PROGRESSIVE in file, f"expected one of {[*map(_digest, references)]}, got {made}"
    return "unfinished progressive image"


def opencv_rgb(file: bytes) -> np.ndarray | None:
    """Of JPEGs alone: OpenCV, like the core, does not mind what follows the last row, where Pillow does."""
    import cv2

    if file[:2] != b"\xff\xd8":
        return None
    pixels = cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    return None if pixels is None else pixels[:, :, ::-1]


def pillow_rgb(file: bytes) -> np.ndarray | None:
    """None where Pillow gives none."""
    try:
        with Image.open(io.BytesIO(file)) as opened:
            if opened.mode.startswith("I;16"):  # of which the core takes the high byte, where Pillow would clip
                return np.repeat((np.asarray(opened, np.uint16) >> 8).astype(np.uint8)[:, :, None], 3, axis=2)
            alpha = "transparency" in opened.info or opened.mode in ("LA", "RGBA", "PA")
            return np.asarray(opened.convert("RGBA" if alpha else "RGB"))[:, :, :3]
    except Exception:  # Pillow's plugins raise anything at damaged bytes
        return None


def _digest(pixels: np.ndarray) -> str:
    return f"{pixels.shape} {hashlib.sha256(np.ascontiguousarray(pixels)).hexdigest()}"


# --- tars ---


def take_tar(file: bytes) -> str:
    """Its regular members, after every sample was read."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.tar"
        path.write_bytes(file)
        for sample in hr.open(path):
            assert sample
        return json.dumps(_scanned(path))


def judge_tar(file: bytes, made: str) -> str:
    ours = [tuple(member) for member in json.loads(made)]
    theirs = tarfile_members(file)
    assert [member[1:] for member in ours[: len(theirs)]] == [member[1:] for member in theirs], "tarfile's members"
    for (own, offset, size), (its, *_) in zip(ours, theirs, strict=False):
        # tarfile takes GNU's times for a prefix where the magic is not ustar's.
        assert its == own or its.endswith("/" + own), f"expected the name {its!r}, got {own!r}"
        assert offset + size <= len(file)
    return "tar"


def tarfile_members(file: bytes) -> Members:
    """As far as tarfile comes."""
    found: Members = []
    try:
        with tarfile.open(fileobj=io.BytesIO(file), mode="r:", errors="surrogateescape") as tar:
            found.extend((member.name, member.offset_data, member.size) for member in tar if member.isreg())
    except (tarfile.TarError, ValueError, OSError, OverflowError):
        pass
    return found


def _scanned(path: Path) -> Members:
    names, offsets, kind, at, size, *_ = scan_tar(os.fsencode(path))
    text = names.tobytes()
    return [
        (text[int(a) : int(b)].decode("utf-8", "surrogateescape"), int(o), int(n))
        for a, b, k, o, n in zip(offsets[:-1], offsets[1:], kind, at, size, strict=True)
        if k in b"07"
    ]


KINDS = {
    "jpeg": Kind(lambda: jpegs(SIZES), take_image, judge_image, lambda file: file),
    "png": Kind(lambda: pngs(SMALL_SIZES), take_image, judge_image, sign_png),
    "tar": Kind(tars, take_tar, judge_tar, sign_tar),
}

if __name__ == "__main__":
    report = judge_all(sys.argv[1], *map(int, sys.argv[2:]))
    print(json.dumps(report))
    sys.exit(1 if report["wrong"] else 0)
