"""What does a JPEG's restart grid gain and cost? Windows decoded, bytes, and the speed of rewriting.

    python benchmarks/pack_jpeg.py FOLDER [--files 100] [--rounds 9] [--scale 4] [--restart 5]

Windows are RandomResizedCrop's. `--scale` enlarges the photographs first, as large originals. Each file counts with its
quickest of several rounds, in which the original and its rewritten file take turns.
"""

import io

import numpy as np
from harness import arguments, encoded, jpegs, seconds
from jpeg_decode import windows_of
from PIL import Image

from headrace import _core


def enlarged(file, scale):
    image = Image.open(io.BytesIO(file))
    return encoded(image.resize((image.width * scale, image.height * scale), Image.Resampling.BICUBIC), quality=90)


def main():
    args = arguments(__doc__, "folder", files=100, rounds=9, scale=1, restart=int)
    files = [path.read_bytes() for path in jpegs(args.folder, args.files)]
    files = files if args.scale == 1 else [enlarged(file, args.scale) for file in files]

    def rewritten(group):
        return [_core.transcode_jpeg(file, restart=args.restart) for file in group]

    packed = [new or file for new, file in zip(rewritten(files), files, strict=True)]
    turns = list(zip(windows_of(files), files, packed, strict=True))
    times = [[[_core.time_jpeg(file, window=at) for file in both] for at, *both in turns] for _ in range(args.rounds)]
    plain_us, packed_us = np.min(times, axis=0).mean(axis=0) / 1000
    print(f"{len(files)} files, {sum(map(len, files)) / len(files) / 1000:.0f} kB each")
    print(f"a window: {plain_us:.0f} us, rewritten {packed_us:.0f} us: {plain_us / packed_us:.2f} times as fast")
    images = [Image.open(io.BytesIO(file)) for file in files]  # other entropy codes keep quantisation and sampling
    kinds = {"as it is": files, "optimised": [encoded(image, quality="keep", optimize=True) for image in images]}
    kinds["progressive"] = [encoded(image, quality="keep", progressive=True) for image in images]
    for name, group in kinds.items():
        took, new = seconds(lambda group=group: rewritten(group)), rewritten(group)
        before, after = sum(map(len, group)), sum(len(n or old) for n, old in zip(new, group, strict=True))
        share = sum(n is not None for n in new) / len(new)
        print(f"{name:14}{after / before:.4f} of the bytes, {share:4.0%} rewritten, {before / took / 1e6:.0f} MB/s")


if __name__ == "__main__":
    main()
