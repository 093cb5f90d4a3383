"""What a DCT scale changes by the size that is left, and what it saves.

    python benchmarks/dct_scaling.py differences FOLDER    # large photographs, at least 2,000 pixels high
    python benchmarks/dct_scaling.py cost FOLDER           # class folders of JPEGs, such as .cache/photos

`differences` saves each photograph 500, 1,000 and 2,000 pixels high (quality 92, 4:2:0), cuts its middle to several
sizes, and compares the decode at each DCT scale with the full one. `cost` interleaves `dct_scaling` None and True.
"""

from __future__ import annotations

import io
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
from PIL import Image

import headrace as hr

HEIGHTS, SIZES = (500, 1000, 2000), (41, 64, 83, 128, 166, 224)
VIEWS = {
    "RandomResizedCrop(224)": hr.RandomResizedCrop(224, flip=0.5),
    "Resize(256), CenterCrop(224)": [hr.Resize(256), hr.CenterCrop(224)],
    "Resize(180), CenterCrop(160)": [hr.Resize(180), hr.CenterCrop(160)],
}
ROUNDS = 6


def differences(folder: Path) -> None:
    found: dict[float, np.ndarray] = defaultdict(lambda: np.zeros(256, np.int64))
    for path in sorted(folder.rglob("*.jp*g"))[:60]:
        whole = Image.open(path).convert("RGB")
        for height in HEIGHTS:
            if whole.height < height:
                continue
            file = io.BytesIO()
            small = whole.resize((whole.width * height // whole.height, height), Image.Resampling.LANCZOS)
            small.save(file, "JPEG", quality=92)
            side = min(small.size)
            for size in SIZES:
                view = [hr.CenterCrop(side), hr.Resize((size, size))]
                full, scaled = (
                    hr.decode_image(file.getvalue(), view=view, dct_scaling=scaling, output="numpy").astype(int)
                    for scaling in (False, True)
                )
                eighths = next((each for each in (1, 2, 4) if side * each / 8 >= size), 8)
                if eighths < 8:
                    left = side * eighths / 8 / size
                    found[round(left, 1)] += np.bincount(np.abs(full - scaled).ravel(), minlength=256)
    for left, counts in sorted(found.items()):
        shares = counts.cumsum() / counts.sum()
        worst = int(np.flatnonzero(counts).max())
        print(f"{left:4.1f} x the output left: 99.9 % within {int(np.searchsorted(shares, 0.999))}, at most {worst}")


def cost(folder: Path) -> None:
    data = hr.open(folder)
    for name, view in VIEWS.items():
        loaders = {
            scaling: hr.Loader(data, {"image": hr.Image(dct_scaling=scaling)}, view=view, batch_size=250, threads=2)
            for scaling in (None, True)
        }
        spent = defaultdict(list)
        for _ in range(ROUNDS):
            for scaling, loader in loaders.items():
                start = time.process_time()
                count = sum(len(batch["image"]) for batch in loader)
                spent[scaling].append(1e6 * (time.process_time() - start) / count)
        default, scaled = (statistics.median(spent[scaling][1:]) for scaling in (None, True))
        print(f"{name}: {default:.0f} µs of CPU time an image, {scaled:.0f} with dct_scaling=True")


if __name__ == "__main__":
    {"differences": differences, "cost": cost}[sys.argv[1]](Path(sys.argv[2]))
