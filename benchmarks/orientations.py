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

import struct
import tempfile
from functools import partial
from pathlib import Path

from harness import HIDDEN, arguments, callgrind, count_instructions, encoded, epoch, in_turns, jpegs, medians
from PIL import Image

import headrace as hr

NOTES_BYTES, XMP_BYTES = 24 << 10, 3 << 10


def segments(orientation):
    """Return a camera's APP1 segments: IFD0 of 12 entries among which is the orientation, notes, and XMP."""
    entries = [struct.pack("<HHIHH", 0x0100 + number, 3, 1, number, 0) for number in range(11)]
    entries.append(struct.pack("<HHIHH", 0x0112, 3, 1, orientation, 0))
    directory = struct.pack("<H", len(entries)) + b"".join(entries) + bytes(4)
    exif = b"Exif\0\0II*\0" + struct.pack("<I", 8) + directory + bytes(NOTES_BYTES)
    xmp = b"http://ns.adobe.com/xap/1.0/\0" + b" " * XMP_BYTES
    return b"".join(b"\xff\xe1" + struct.pack(">H", 2 + len(content)) + content for content in (exif, xmp))


def enlarged(path, side):
    picture = Image.open(path).convert("RGB")
    by = side / max(picture.size)
    size = (round(picture.width * by), round(picture.height * by))
    return encoded(picture.resize(size, Image.Resampling.BICUBIC), quality=90)


def write_copies(photos, root, side):
    for number, path in enumerate(photos):
        data = path.read_bytes() if side is None else enlarged(path, side)
        for kind, more in {"plain": b"", "upright": segments(1), "turned": segments(2 + number % 7)}.items():
            (root / kind).mkdir(exist_ok=True)
            (root / kind / f"{number}.jpg").write_bytes(data[:2] + more + data[2:])


def make_loader(folder, size, exif=True):
    settings = {"batch_size": 32, "shuffle": False, "threads": 1, "output": "numpy", "on_error": "raise"}
    view = hr.RandomResizedCrop(size, flip=0.5)
    return hr.Loader(hr.open(folder), {"image": hr.Image(exif=exif)}, view=view, **settings)


def count_epoch(loader):
    """Run in callgrind: an epoch that is not counted, then one that is."""
    epoch(loader)
    count_instructions("on")
    epoch(loader)
    count_instructions("off")


def main():
    hidden = {"type": int, **HIDDEN}
    args = arguments(
        __doc__, "folder", files=400, rounds=5, side=int, view=224, instructions=False, count_exif=hidden
    )  # fmt: skip
    if args.count_exif is not None:
        count_epoch(make_loader(args.folder, args.view, bool(args.count_exif)))
        return
    photos = jpegs(args.folder, args.files)
    with tempfile.TemporaryDirectory() as name:
        root, count = Path(name), len(photos)
        write_copies(photos, root, args.side)
        if not args.instructions:
            cases = {
                each: partial(epoch, make_loader(root / each, args.view)) for each in ("plain", "upright", "turned")
            }
            for kind, (wall_s, cpu_s) in medians(in_turns(cases, args.rounds, warm_up=1)).items():
                print(f"{kind:8} {count / wall_s:8.0f} images/s {1e3 * cpu_s / count:8.2f} ms of CPU an image")
            return
        for kind in ("plain", "upright"):
            without, with_it = (
                callgrind(__file__, root / kind, "--count-exif", exif, "--view", args.view) for exif in (0, 1)
            )
            more = f"{with_it / without - 1:+.2%} with exif=True"
            print(f"{kind:8} {without / count:12,.0f} instructions an image with exif=False, {more}")


if __name__ == "__main__":
    main()
