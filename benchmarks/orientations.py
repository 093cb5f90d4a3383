"""What do EXIF orientations cost: looking for one in an upright photograph, and turning the others?

    python benchmarks/orientations.py FOLDER [--files 400] [--rounds 5] [--side 4000] [--view 224]
    python benchmarks/orientations.py FOLDER --instructions

Copies of a folder's JPEGs: `plain` without EXIF, `upright` with a camera's EXIF (its preview and notes are 24 KB, its
XMP is 3 KB), and `turned` with the same and an orientation of 2 to 8. With --side, photographs are first enlarged to
this longer side, like those of phones. A Loader of one thread crops and resizes each folder by RandomResizedCrop;
rounds are interleaved, and medians are printed of images/s and of the process's CPU time an image.

--instructions counts those of decoding `plain` and `upright` with exif=True and with exif=False, by callgrind: a count
does not depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

import headrace as hr

NOTES_BYTES, XMP_BYTES = 24 << 10, 3 << 10
KINDS = ("plain", "upright", "turned")


def segments(orientation: int) -> bytes:
    """Return a camera's APP1 segments: IFD0 of 12 entries among which is the orientation, notes, and XMP."""
    entries = [struct.pack("<HHIHH", 0x0100 + number, 3, 1, number, 0) for number in range(11)]
    entries.append(struct.pack("<HHIHH", 0x0112, 3, 1, orientation, 0))
    directory = struct.pack("<H", len(entries)) + b"".join(entries) + bytes(4)
    exif = b"Exif\0\0II*\0" + struct.pack("<I", 8) + directory + bytes(NOTES_BYTES)
    xmp = b"http://ns.adobe.com/xap/1.0/\0" + b" " * XMP_BYTES
    return b"".join(b"\xff\xe1" + struct.pack(">H", 2 + len(content)) + content for content in (exif, xmp))


def enlarged(data: bytes, side: int) -> bytes:
    with Image.open(io.BytesIO(data)) as opened:
        picture = opened.convert("RGB")
    by, out = side / max(picture.size), io.BytesIO()
    size = (round(picture.width * by), round(picture.height * by))
    picture.resize(size, Image.Resampling.BICUBIC).save(out, "JPEG", quality=90)
    return out.getvalue()


def write_copies(photos: list[Path], root: Path, side: int | None) -> None:
    for number, path in enumerate(photos):
        data = path.read_bytes() if side is None else enlarged(path.read_bytes(), side)
        for kind in KINDS:
            more = {"plain": b"", "upright": segments(1), "turned": segments(2 + number % 7)}[kind]
            (root / kind).mkdir(exist_ok=True)
            (root / kind / f"{number}.jpg").write_bytes(data[:2] + more + data[2:])


def make_loader(folder: Path, size: int, exif: bool) -> hr.Loader:
    return hr.Loader(
        hr.open(folder),
        {"image": hr.Image(exif=exif)},
        view=hr.RandomResizedCrop(size, flip=0.5),
        batch_size=32,
        shuffle=False,
        threads=1,
        output="numpy",
        on_error="raise",
    )


def run(loader: hr.Loader) -> tuple[float, float]:
    """Return the wall and CPU seconds of an epoch."""
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    for _ in loader:
        pass
    return time.perf_counter() - began_s, time.process_time() - began_cpu_s


def measure(root: Path, rounds: int, size: int, count: int) -> None:
    loaders = {kind: make_loader(root / kind, size, True) for kind in KINDS}
    times: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    for number in range(rounds + 1):
        for kind, loader in loaders.items():
            seconds = run(loader)
            if number:
                times[kind].append(seconds)
    for kind, found in times.items():
        wall_s, cpu_s = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"{kind:8} {count / wall_s:8.0f} images/s {1e3 * cpu_s / count:8.2f} ms of CPU an image", flush=True)


def count_epoch(folder: Path, size: int, exif: bool) -> None:
    """Run in callgrind: an epoch that is not counted, then one that is."""
    loader = make_loader(folder, size, exif)
    run(loader)
    for switch in ("--instr=on", "--instr=off"):
        subprocess.run(["callgrind_control", switch, str(os.getpid())], check=True, capture_output=True)
        if switch == "--instr=on":
            run(loader)


def instructions(folder: Path, size: int, exif: bool) -> int:
    """Return the instructions of an epoch."""
    out = folder.parent / "callgrind.out"
    valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}"]
    command = [sys.executable, __file__, str(folder), "--count", str(int(exif)), "--view", str(size)]
    found = subprocess.run([*valgrind, *command], check=True, capture_output=True, text=True)
    return int(re.findall(r"Collected : (\d+)", found.stderr)[0])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--side", type=int)
    parser.add_argument("--view", type=int, default=224)
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.count is not None:
        return count_epoch(options.folder, options.view, bool(options.count))
    photos = sorted(options.folder.rglob("*.jpg"))[: options.files]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_copies(photos, root, options.side)
        if not options.instructions:
            return measure(root, options.rounds, options.view, len(photos))
        for kind in KINDS[:2]:
            without, with_it = (instructions(root / kind, options.view, exif) for exif in (False, True))
            print(f"{kind:8} {without / len(photos):12,.0f} instructions an image with exif=False, "
                  f"{with_it / without - 1:+.2%} with exif=True")  # fmt: skip
    return None


if __name__ == "__main__":
    main()
