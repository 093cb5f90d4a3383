"""Frames of clips as files: Headrace beside TSM's own dataset and transforms, under torch's DataLoader.

    python benchmarks/clips.py PHOTOS --tsm FOLDER [--workers 2] [--batch-size 16] [--rounds 3] [--clips 240]

FOLDER is a checkout of mit-han-lab/temporal-shift-module; torchvision is needed. Each clip is 12 to 40 frames of
340 x 256, cut from a photograph of PHOTOS that is panned over. Both take 8 frames a clip, a random one of each eighth,
cut all by one window with a random size, and flip half of the clips to float32 of 224 x 224. Rounds in turn; medians.
"""

import random
import sys
import tempfile
from functools import partial
from pathlib import Path

from harness import arguments, exhaust, in_turns, jpegs, machine, print_quartiles, seconds
from PIL import Image

import headrace as hr

FRAMES, SIDE, WIDTH, HEIGHT = 8, 224, 340, 256


def make_clips(photos, folder, count):
    """Write folders of frames and TSM's list of them: the folder, its number of frames and a label."""
    draw, lines = random.Random(0), []
    files = jpegs(photos)
    for number in range(count):
        photo = Image.open(files[number % len(files)]).convert("RGB").resize((WIDTH + 80, HEIGHT + 20))
        frames = draw.randint(12, 40)
        place = folder / f"clip{number:04}"
        place.mkdir()
        for frame in range(frames):
            left = 80 * frame // frames
            cut = photo.crop((left, left // 4, left + WIDTH, left // 4 + HEIGHT))
            cut.save(place / f"img_{frame + 1:05}.jpg", quality=90)
        lines.append(f"{place.name} {frames} {number % 10}")
    (folder / "list.txt").write_text("\n".join(lines) + "\n")


def of_tsm(folder, args):
    sys.path.insert(0, str(args.tsm))
    import torch
    import torchvision
    from ops import transforms
    from ops.dataset import TSNDataSet

    augment = [transforms.GroupMultiScaleCrop(SIDE, [1, 0.875, 0.75, 0.66]), transforms.GroupRandomHorizontalFlip()]
    tensors = [transforms.Stack(), transforms.ToTorchFormatTensor(), transforms.GroupNormalize(*MEAN_STD)]
    transform = torchvision.transforms.Compose([*augment, *tensors])
    listed = str(folder / "list.txt")
    dataset = TSNDataSet(str(folder), listed, num_segments=FRAMES, image_tmpl="img_{:05d}.jpg", transform=transform)
    options = {"num_workers": args.workers, "shuffle": True, "drop_last": True, "persistent_workers": True}
    return torch.utils.data.DataLoader(dataset, args.batch_size, **options)


MEAN_STD = list(hr.IMAGENET.mean), list(hr.IMAGENET.std)


def of_headrace(folder, args):
    rows = [line.split() for line in (folder / "list.txt").read_text().splitlines()]
    data = hr.open({"frames": [name for name, _, _ in rows], "label": [int(label) for *_, label in rows]}, root=folder)
    image = hr.Image(dtype="float32", normalize=hr.IMAGENET)
    fields = {"frames": hr.Images(image, count=FRAMES, frames="segments"), "label": hr.Label()}
    view = hr.RandomResizedCrop(SIDE, scale=(0.33, 0.75), flip=0.5)
    options = {"shuffle": True, "remainder": "drop", "threads": args.workers}
    return hr.Loader(data, fields, view=view, batch_size=args.batch_size, **options)


def rate(loader, args):
    """Return clips a second, over an epoch."""
    return len(loader) * args.batch_size / seconds(lambda: exhaust(loader))


def main():
    args = arguments(__doc__, "photos", tsm=Path, workers=2, batch_size=16, rounds=3, clips=240)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_clips(args.photos, folder, args.clips)
        sides = {"Headrace": of_headrace(folder, args), "TSM, DataLoader": of_tsm(folder, args)}
        cases = {side: partial(rate, loader, args) for side, loader in sides.items()}
        print(machine())
        print(f"{FRAMES} frames a clip, batches of {args.batch_size} clips, {args.workers} workers")
        print_quartiles(in_turns(cases, args.rounds, warm_up=1), "clips/s", more_is_better=True)


if __name__ == "__main__":
    main()
