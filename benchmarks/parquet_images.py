"""Images inside parquet: what a sample costs by decoding its row group, and what decoding all values once costs.

    python benchmarks/parquet_images.py [--images 4000] [--folder FOLDER]

For row groups of 100 rows (as the Hub's files have) and one row group of all: the time of one sample when its row group
is decoded for it, alone and with the 8 groups last used kept; the first opening, which decodes all once into
`*.values.headrace`; a later opening; and a shuffled epoch of RandomResizedCrop(224) from there, beside the same images
in a tar.
"""

from __future__ import annotations

import argparse
import collections
import io
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

import headrace as hr

_UNIQUE = 200


def photographs() -> list[bytes]:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(_UNIQUE):
        small = rng.integers(0, 256, (30, 40, 3), np.uint8)
        picture = np.asarray(Image.fromarray(small).resize((500, 375), Image.Resampling.BICUBIC), np.int16)
        noisy = (picture + rng.normal(0, 9, picture.shape)).clip(0, 255).astype(np.uint8)
        out = io.BytesIO()
        Image.fromarray(noisy).save(out, "JPEG", quality=88)
        found.append(out.getvalue())
    return found


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def sample_by_group(path: str, rows: int, group_rows: int, kept: int, reads: int) -> float:
    """Seconds a sample in random order, with so many decoded row groups kept."""
    file = pq.ParquetFile(path)
    groups: collections.OrderedDict[int, pa.Table] = collections.OrderedDict()
    order = np.random.default_rng(1).integers(0, rows, reads)

    def read() -> None:
        for row in order.tolist():
            number = row // group_rows
            if number not in groups:
                groups[number] = file.read_row_group(number, columns=["image"])
            groups.move_to_end(number)
            while len(groups) > kept:
                groups.popitem(last=False)
            groups[number].column("image")[row % group_rows].as_py()

    return seconds(read) / reads


def epoch(where: str) -> float:
    """Images a second, of the second of two epochs."""
    loader = hr.Loader(where, {"image": hr.Image()}, view=hr.RandomResizedCrop(224, flip=0.5), batch_size=256,
                       shuffle=True, output="numpy")  # fmt: skip
    count = len(hr.open(where))
    for _ in range(2):
        taken = seconds(lambda: collections.deque(loader, maxlen=0))
    return count / taken


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--folder")
    given = parser.parse_args()
    folder = tempfile.mkdtemp(dir=given.folder)
    try:
        measure(folder, given.images)
    finally:
        shutil.rmtree(folder)


def measure(folder: str, count: int) -> None:
    unique = photographs()
    images = [{"bytes": unique[number % _UNIQUE] + b"%d" % number, "path": f"{number}.jpg"} for number in range(count)]
    table = pa.table({"image": images, "label": list(range(count))})
    total = sum(len(image["bytes"]) for image in images)
    print(f"{count:,} images of {total / count / 1000:.0f} kB, {total / 1e6:,.0f} MB, {os.cpu_count()} cores")
    for group_rows in (100, count):
        path = os.path.join(folder, f"{group_rows}.parquet")
        pq.write_table(table, path, row_group_size=group_rows)
        reads = 200 if group_rows < count else 5
        alone = sample_by_group(path, count, group_rows, 1, reads)
        kept = sample_by_group(path, count, group_rows, 8, reads) if group_rows < count else None
        first = seconds(lambda: hr.open(path))  # noqa: B023  # called at once
        later = seconds(lambda: hr.open(path))  # noqa: B023
        kept_text = "" if kept is None else f", {kept * 1e3:.1f} ms with 8 groups kept"
        print(
            f"row groups of {group_rows:,}: a sample by its group {alone * 1e3:.1f} ms{kept_text}; first opening "
            f"{first:.2f} s ({total / first / 1e6:,.0f} MB/s), later {later * 1e3:.0f} ms; "
            f"{epoch(path):,.0f} images/s"
        )
    with tarfile.open(os.path.join(folder, "a.tar"), "w") as archive:
        for number, image in enumerate(images):
            member = tarfile.TarInfo(f"{number}.jpg")
            member.size = len(image["bytes"])
            archive.addfile(member, io.BytesIO(image["bytes"]))
    print(f"the same in a tar: {epoch(os.path.join(folder, 'a.tar')):,.0f} images/s")


if __name__ == "__main__":
    main()
