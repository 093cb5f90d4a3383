"""What opening a large zip costs: its central directory read natively and by `zipfile`, the sidecar, the first batch.

    python benchmarks/zip_index.py [--members 1000000] [--member-bytes 78000] [--folder FOLDER]

The zip is sparse: headers and directory alone take room on the disk, as if each member were stored. Each figure is of
this process and this machine; the file lies in the page cache, and `zipfile` is asked once, since it is slow.
"""

from __future__ import annotations

import argparse
import resource
import struct
import tempfile
import time
import zipfile
import zlib
from pathlib import Path

import headrace as hr
from headrace.data import zip_sidecar

SLOT_BYTES = 512  # beside the data: header, name, and what is left of a block


def write_sparse_zip(path: Path, members: int, member_bytes: int) -> None:
    """Members of zeros, stored; with ZIP64 fields where a place needs them."""
    crc = zlib.crc32(bytes(member_bytes))
    directory = []
    slot = member_bytes + SLOT_BYTES
    with path.open("wb") as file:
        for number in range(members):
            name = b"class%04d/%08d.jpg" % (number % 1000, number)
            at = number * slot
            common = struct.pack("<HHHHHIII", 45, 0, 0, 0, 0x21, crc, member_bytes, member_bytes)
            file.seek(at)
            file.write(b"PK\3\4" + common + struct.pack("<HH", len(name), 0) + name)
            extra = struct.pack("<HHQ", 1, 8, at)
            tail = struct.pack("<HHHHHII", len(name), len(extra), 0, 0, 0, 0, 0xFFFFFFFF)
            directory.append(b"PK\1\2\x2d\0" + common + tail + name + extra)
        start = members * slot
        file.seek(start)
        file.writelines(directory)
        end = file.tell()
        sizes = struct.pack("<QQQQ", members, members, end - start, start)
        file.write(b"PK\6\6" + struct.pack("<QHHII", 44, 45, 45, 0, 0) + sizes)
        file.write(b"PK\6\7" + struct.pack("<IQI", 0, end, 1))
        file.write(b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0))


def seconds(call: object) -> float:
    began = time.perf_counter()
    call()  # type: ignore[operator]
    return time.perf_counter() - began


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=1_000_000)
    parser.add_argument("--member-bytes", type=int, default=78_000)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        path = Path(folder) / "large.zip"
        write_sparse_zip(path, arguments.members, arguments.member_bytes)
        before = peak_mb()
        build_s = seconds(lambda: zip_sidecar.build_index(str(path)))
        print(f"index built from the directory: {build_s:.2f} s, {arguments.members / build_s:,.0f} members/s")
        open_s = seconds(lambda: hr.open(path))
        again_s = min(seconds(lambda: hr.open(path)) for _ in range(5))
        sidecar = path.with_name(path.name + ".headrace").stat().st_size
        print(f"hr.open: {open_s:.2f} s the first time, {again_s * 1e3:.1f} ms with its sidecar")
        print(f"sidecar: {sidecar / arguments.members:.1f} bytes a member; memory grew by {peak_mb() - before:.0f} MB")
        zipfile_s = seconds(lambda: zipfile.ZipFile(path).close())
        print(f"zipfile.ZipFile: {zipfile_s:.1f} s")


if __name__ == "__main__":
    main()
