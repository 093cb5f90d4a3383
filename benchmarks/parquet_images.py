"""Images inside parquet: what a sample costs by decoding its row group, and what decoding all values once costs.

    python benchmarks/parquet_images.py [--images 4000] [--folder FOLDER]

For row groups of 100 rows (as the Hub's files have) and one row group of all: the time of one sample when its row group
is decoded for it, alone and with the 8 groups last used kept; the first opening, which decodes all once into
`*.values.headrace`; a later opening; and a shuffled epoch of RandomResizedCrop(224) from there, beside the same images
in a tar.
"""

import os
import tempfile
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from harness import arguments, cycled, encoded, exhaust, seconds, write_tar
from PIL import Image

import headrace as hr


def photograph(rng):
    small = Image.fromarray(rng.integers(0, 256, (30, 40, 3), np.uint8))
    picture = np.asarray(small.resize((500, 375), Image.Resampling.BICUBIC), np.int16)
    noisy = (picture + rng.normal(0, 9, picture.shape)).clip(0, 255).astype(np.uint8)
    return encoded(Image.fromarray(noisy), quality=88)


def sample_ms(path, rows, group_rows, kept, reads):
    """Return the time of a sample in random order, with so many decoded row groups kept."""
    file = pq.ParquetFile(path)
    group = lru_cache(kept)(lambda number: file.read_row_group(number, columns=["image"]))
    order = np.random.default_rng(1).integers(0, rows, reads).tolist()
    read = seconds(lambda: [group(row // group_rows).column("image")[row % group_rows].as_py() for row in order])
    return read / reads * 1e3


def rate(where, count):
    """Return images/s in the second epoch."""
    settings = {"batch_size": 256, "shuffle": True, "output": "numpy"}
    loader = hr.Loader(str(where), {"image": hr.Image()}, view=hr.RandomResizedCrop(224, flip=0.5), **settings)
    exhaust(loader)
    return count / seconds(lambda: exhaust(loader))


def measure(folder, count):
    rng = np.random.default_rng(0)
    files = [each + b"%d" % number for number, each in enumerate(cycled([photograph(rng) for _ in range(200)], count))]
    images = [{"bytes": file, "path": f"{number}.jpg"} for number, file in enumerate(files)]
    total = sum(map(len, files))
    print(f"{count:,} images of {total / count / 1000:.0f} kB, {total / 1e6:,.0f} MB, {os.cpu_count()} cores")
    for group_rows in (100, count):
        path, has_groups = folder / f"{group_rows}.parquet", group_rows < count
        pq.write_table(pa.table({"image": images, "label": range(count)}), path, row_group_size=group_rows)
        alone = sample_ms(path, count, group_rows, 1, 200 if has_groups else 5)
        kept = f", {sample_ms(path, count, group_rows, 8, 200):.1f} ms with 8 groups kept" if has_groups else ""
        first, later = (seconds(lambda path=path: hr.open(path)) for _ in range(2))
        print(
            f"row groups of {group_rows:,}: a sample by its group {alone:.1f} ms{kept}; first opening {first:.2f} s "
            f"({total / first / 1e6:,.0f} MB/s), later {later * 1e3:.0f} ms; {rate(path, count):,.0f} images/s"
        )
    tar = write_tar(folder / "a.tar", ((f"{number}.jpg", file) for number, file in enumerate(files)))
    print(f"the same in a tar: {rate(tar, count):,.0f} images/s")


def main():
    args = arguments(__doc__, images=4000, folder=Path)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        measure(Path(folder), args.images)


if __name__ == "__main__":
    main()
