"""How much does decoding at a DCT scale change an image, by the size that is left?

    python benchmarks/dct_scaling.py FOLDER

Saves each of FOLDER's large photographs (at least 2,000 pixels high) 500, 1,000 and 2,000 pixels high (quality 92,
4:2:0), cuts its middle to several sizes, and compares the decode at each DCT scale with the full one.
"""

from collections import defaultdict

import numpy as np
from harness import arguments, encoded, jpegs
from PIL import Image

import headrace as hr


def main():
    found = defaultdict(lambda: np.zeros(256, np.int64))
    for path in jpegs(arguments(__doc__, "folder").folder, 60):
        whole = Image.open(path).convert("RGB")
        for height in (height for height in (500, 1000, 2000) if whole.height >= height):
            small = whole.resize((whole.width * height // whole.height, height), Image.Resampling.LANCZOS)
            file, side = encoded(small, quality=92), min(small.size)
            for size in (41, 64, 83, 128, 166, 224):
                eighths = next((each for each in (1, 2, 4) if side * each / 8 >= size), 8)
                if eighths < 8:
                    view = [hr.CenterCrop(side), hr.Resize((size, size))]
                    full, scaled = (
                        hr.decode_image(file, view=view, dct_scaling=scaling, output="numpy").astype(int)
                        for scaling in (False, True)
                    )
                    counts = np.bincount(np.abs(full - scaled).ravel(), minlength=256)
                    found[round(side * eighths / 8 / size, 1)] += counts
    for left, counts in sorted(found.items()):
        most = int(np.searchsorted(counts.cumsum() / counts.sum(), 0.999))
        print(f"{left:4.1f} x the output left: 99.9 % within {most}, at most {np.flatnonzero(counts).max()}")


if __name__ == "__main__":
    main()
