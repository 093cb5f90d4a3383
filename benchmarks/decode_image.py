"""How much quicker does a custom Dataset become when its `__getitem__` decodes with `decode_image` instead of Pillow?

    python benchmarks/decode_image.py FOLDER [--files 1500] [--workers 1 2] [--rounds 5] [--batch-size 64]

The same Dataset under torch's DataLoader, RandomResizedCrop(224) and a flip, uint8 tensors, torch's own collate:

    decode_image   ImageReader(view=RandomResizedCrop(224, flip=0.5))(path)
    pillow         Image.open(path).convert("RGB").resize((224, 224), BILINEAR, box=box)
    pillow draft   the same, after draft() has let libjpeg decode at half size or less where the window allows
    collate only   no decoding: what DataLoader and collate by themselves allow

Pillow's boxes are drawn by the core's sampler too, from sizes that were read before. Rounds are interleaved, each over
the whole folder by workers that are there already; medians are printed, of speeds and of the ratios within a round.
"""

import platform
import statistics
import time
from functools import partial

import numpy as np
import PIL
import torch
from harness import Mapped, arguments, described, in_turns, jpegs, ratio
from PIL import Image
from torch.utils.data import DataLoader

from headrace import RandomResizedCrop, _core
from headrace.dropins.image_reader import ImageReader
from headrace.views import compile_view

SIZE = 224
VIEW = RandomResizedCrop(SIZE, flip=0.5)
PROGRAM = compile_view(VIEW).ops


def by_pillow(path, sizes, draft):
    """Crop and resize in one call, with boxes of the core's distribution."""
    left, top, right, bottom, flip = box = draw_box(*sizes[path])
    image, box = Image.open(path), box[:4]
    if draft:
        width, height = image.size
        scale = min((right - left) / SIZE, (bottom - top) / SIZE)
        if scale > 1:
            image.draft("RGB", (int(width / scale), int(height / scale)))
            across, down = image.width / width, image.height / height
            box = (left * across, top * down, right * across, bottom * down)
    image = image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=box)
    if flip:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def draw_box(width, height):
    key = int(torch.empty((), dtype=torch.int64).random_())
    sides = (np.array([side], np.int32) for side in (width, height))
    view = _core.sample_views(PROGRAM, key, np.zeros(1, np.int64), np.zeros(1, np.uint32), 0, *sides)[0]
    return *map(int, view[4:8]), bool(view[14])


def images_per_s(loader):
    start = time.perf_counter()
    return sum(len(batch) for batch in loader) / (time.perf_counter() - start)


def main():
    args = arguments(__doc__, "folder", files=1500, workers=[1, 2], rounds=5, batch_size=64)
    files = jpegs(args.folder, args.files, more_than=args.batch_size)
    sizes, blank = {str(path): Image.open(path).size for path in files}, torch.zeros((3, SIZE, SIZE), dtype=torch.uint8)
    ways = {
        "decode_image": ImageReader(view=VIEW),
        "pillow": partial(by_pillow, sizes=sizes, draft=False),
        "pillow draft": partial(by_pillow, sizes=sizes, draft=True),
        "collate only": lambda _: blank,
    }
    print(f"{described(files)};")
    print(f"torch {torch.__version__}, Pillow {PIL.__version__}, {platform.machine()}, {_core.best_level()}")
    for workers in args.workers:
        options = {"batch_size": args.batch_size, "num_workers": workers, "persistent_workers": True}
        loaders = {name: DataLoader(Mapped(list(sizes), way), shuffle=True, **options) for name, way in ways.items()}
        speeds = in_turns(
            {name: partial(images_per_s, loader) for name, loader in loaders.items()}, args.rounds, warm_up=1
        )
        for name, theirs in speeds.items():
            times = ratio(speeds["decode_image"], theirs)
            middle = f"{statistics.median(theirs):8,.0f} images/s"
            print(f"{workers} workers  {name:13} {middle}   decode_image is {times:5.2f} x")


if __name__ == "__main__":
    main()
