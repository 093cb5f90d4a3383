"""How much quicker does a custom Dataset become when its `__getitem__` decodes with `decode_image` instead of Pillow?

The same Dataset under torch's DataLoader, RandomResizedCrop(224) and a flip, uint8 tensors, torch's own collate:

    decode_image   ImageReader(view=RandomResizedCrop(224, flip=0.5))(path)
    pillow         Image.open(path).convert("RGB").resize((224, 224), BILINEAR, box=box)
    pillow draft   the same, after draft() has let libjpeg decode at half size or less where the window allows
    collate only   no decoding: what DataLoader and collate by themselves allow

Pillow's boxes are drawn by the core's sampler too, from sizes that were read before. Rounds are interleaved, each over
the whole folder by workers that are there already; medians are printed, of speeds and of the ratios within a round.

    python benchmarks/decode_image.py FOLDER [--files 1500] [--workers 1 2] [--rounds 5] [--batch-size 64]
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from headrace import RandomResizedCrop, _core
from headrace.dropins.image_reader import ImageReader
from headrace.views import compile_view

SIZE = 224
VIEW = RandomResizedCrop(SIZE, flip=0.5)
PROGRAM = compile_view(VIEW).ops


class Photos(Dataset[torch.Tensor]):
    """Files, and a way to decode one of them."""

    def __init__(self, files: list[str], decode: Callable[[str], torch.Tensor]) -> None:
        self.files = files
        self.decode = decode

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.decode(self.files[index])


class ByPillow:
    """Pillow's crop and resize in one call, with boxes of the core's distribution."""

    def __init__(self, sizes: dict[str, tuple[int, int]], *, draft: bool) -> None:
        self.sizes = sizes
        self.draft = draft

    def __call__(self, path: str) -> torch.Tensor:
        left, top, right, bottom, flip = self._box(*self.sizes[path])
        image = Image.open(path)
        box: tuple[float, float, float, float] = (left, top, right, bottom)
        if self.draft:
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

    def _box(self, width: int, height: int) -> tuple[int, int, int, int, bool]:
        key = int(torch.empty((), dtype=torch.int64).random_())
        sides = (np.array([side], np.int32) for side in (width, height))
        view = _core.sample_views(PROGRAM, key, np.zeros(1, np.int64), np.zeros(1, np.uint32), 0, *sides)[0]
        left, top, right, bottom = (int(value) for value in view[4:8])
        return left, top, right, bottom, bool(view[14])


class Nothing:
    """A tensor that is there already."""

    def __init__(self) -> None:
        self.image = torch.zeros((3, SIZE, SIZE), dtype=torch.uint8)

    def __call__(self, path: str) -> torch.Tensor:
        return self.image


def images_per_second(loader: DataLoader[torch.Tensor]) -> float:
    """One epoch, by workers that are there already."""
    start = time.perf_counter()
    count = sum(len(batch) for batch in loader)
    return count / (time.perf_counter() - start)


def measure(contenders: dict[str, Dataset[torch.Tensor]], workers: int, rounds: int, batch_size: int) -> None:
    loaders = {
        name: DataLoader(dataset, batch_size, shuffle=True, num_workers=workers, persistent_workers=True)
        for name, dataset in contenders.items()
    }
    speeds: dict[str, list[float]] = {name: [] for name in loaders}
    for round_ in range(rounds + 1):
        for name, loader in loaders.items():
            speed = images_per_second(loader)
            if round_ > 0:  # the first fills the page cache and starts the workers
                speeds[name].append(speed)
    for name, theirs in speeds.items():
        ratios = [ours / their for ours, their in zip(speeds["decode_image"], theirs, strict=True)]
        print(
            f"{workers} workers  {name:13} {statistics.median(theirs):8,.0f} images/s   "
            f"decode_image is {statistics.median(ratios):5.2f} x"
        )


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("folder", type=Path)
    ask.add_argument("--files", type=int, default=1500)
    ask.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    ask.add_argument("--rounds", type=int, default=5)
    ask.add_argument("--batch-size", type=int, default=64)
    args = ask.parse_args()
    files = [str(path) for path in sorted(args.folder.rglob("*.jp*g"))[: args.files]]
    if len(files) <= args.batch_size:
        ask.error(f"expected more than {args.batch_size} JPEG files under {args.folder}, got {len(files)}")
    sizes = {path: Image.open(path).size for path in files}
    contenders: dict[str, Dataset[torch.Tensor]] = {
        "decode_image": Photos(files, ImageReader(view=VIEW)),
        "pillow": Photos(files, ByPillow(sizes, draft=False)),
        "pillow draft": Photos(files, ByPillow(sizes, draft=True)),
        "collate only": Photos(files, Nothing()),
    }
    print(f"{len(files):,} files, {sum(Path(path).stat().st_size for path in files) / len(files) / 1000:.0f} kB each;")
    print(f"torch {torch.__version__}, Pillow {PIL.__version__}, {platform.machine()}, {_core.best_level()}")
    for workers in args.workers:
        measure(contenders, workers, args.rounds, args.batch_size)


if __name__ == "__main__":
    main()
