"""What opening a large zip costs: its central directory read natively and by `zipfile`, the sidecar, the first batch.

    python benchmarks/zip_index.py [--members 1000000] [--folder FOLDER]

Members are stored, small and alike: their data is not looked at. ZIP64 fields say where each begins. The file lies in
the page cache, and `zipfile` is asked once, since it is slow.
"""

import struct
import tempfile
import zipfile
import zlib
from pathlib import Path

from harness import arguments, memory_mb, seconds

import headrace as hr
from headrace.data.archives import zip_index

CONTENT = bytes(100)


def write_zip(path, members):
    crc, size = zlib.crc32(CONTENT), len(CONTENT)
    directory, at = [], 0
    with path.open("wb") as file:
        for number in range(members):
            name = b"class%04d/%08d.jpg" % (number % 1000, number)
            common = struct.pack("<HHHHHIII", 45, 0, 0, 0, 0x21, crc, size, size)
            extra = struct.pack("<HHQ", 1, 8, at)
            tail = struct.pack("<HHHHHII", len(name), len(extra), 0, 0, 0, 0, 0xFFFFFFFF)
            directory.append(b"PK\1\2\x2d\0" + common + tail + name + extra)
            at += file.write(b"PK\3\4" + common + struct.pack("<HH", len(name), 0) + name + CONTENT)
        file.writelines(directory)
        end = file.tell()
        sizes = struct.pack("<QQQQ", members, members, end - at, at)
        file.write(b"PK\6\6" + struct.pack("<QHHII", 44, 45, 45, 0, 0) + sizes)
        file.write(b"PK\6\7" + struct.pack("<IQI", 0, end, 1))
        file.write(b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0))


def first_batch(data):
    next(iter(hr.Loader(data, {"image": hr.Raw()}, batch_size=64, shuffle=True, output="numpy")))


def main():
    args = arguments(__doc__, members=1_000_000, folder=Path)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        path = Path(folder, "large.zip")
        write_zip(path, args.members)
        (before,) = memory_mb("VmHWM")
        build_s = seconds(lambda: zip_index.build_zip_index(str(path)))
        print(f"index built from the directory: {build_s:.2f} s, {args.members / build_s:,.0f} members/s")
        open_s = seconds(lambda: hr.open(path))
        again_s = min(seconds(lambda: hr.open(path)) for _ in range(5))
        sidecar, grown = Path(f"{path}.headrace").stat().st_size, memory_mb("VmHWM")[0] - before
        print(f"hr.open: {open_s:.2f} s the first time, {again_s * 1e3:.1f} ms with its sidecar")
        print(f"sidecar: {sidecar / args.members:.1f} bytes a member; memory grew by {grown:.0f} MB")
        data = hr.open(path)
        print(f"first batch of 64, unread members: {seconds(lambda: first_batch(data)) * 1e3:.0f} ms")
        print(f"zipfile.ZipFile: {seconds(lambda: zipfile.ZipFile(path).close()):.1f} s")


if __name__ == "__main__":
    main()
