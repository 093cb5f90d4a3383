"""Segmentation of images of unlike sizes, on one rank or many: one shape on every rank at every step.

    python examples/make_scenes.py scenes
    torchrun --nproc-per-node 2 examples/segmentation.py scenes --steps 40
    python examples/segmentation.py scenes --steps 60    # goes on where that stopped: same batches, on one rank

Each batch has one short side, drawn for all ranks, and images of like shape, so that no rank waits for another one's
larger images; an image and its mask are cut by one view. Gradients are exchanged once for ACCUMULATE batches. On CPU
and CUDA the program is the same; on CUDA, BatchNorm becomes SyncBatchNorm.
"""

import argparse
import os
from pathlib import Path

import torch
from torch import nn

import headrace as hr

GLOBAL_BATCH = 4  # over all ranks, so that a run can be resumed on another number of them
ACCUMULATE = 2
CLASSES = 5
IGNORE = 255
SHORT_SIDES, LONG_MAX = (300, 375, 450, 525, 600), 1000  # for images as ADE20K's; `--scale` makes all smaller
MULTIPLE_OF = 8


def loader_of(folder, scale, ranks):
    return hr.Loader(
        hr.open({"image": folder / "images", "mask": folder / "masks"}),
        {"image": hr.Image(dtype="float32", normalize=hr.IMAGENET), "mask": hr.Mask(ignore=IGNORE, dtype="int64")},
        view=hr.RandomScale(
            [round(side * scale) for side in SHORT_SIDES],
            long_max=round(LONG_MAX * scale),
            multiple_of=MULTIPLE_OF,
            flip=0.5,
        ),
        buckets=hr.Buckets("aspect", count=3),
        batch_size=GLOBAL_BATCH // ranks.world_size,
        shuffle=True,
        seed=0,
        remainder="drop",
        device=ranks.device,
    )


def block(channels, out, dilation=1):
    return nn.Sequential(nn.Conv2d(channels, out, 3, 1, dilation, dilation), nn.BatchNorm2d(out), nn.ReLU())


def network():
    body = [block(3, 24), nn.AvgPool2d(2), block(24, 32, dilation=2), block(32, 32, dilation=4)]
    return nn.Sequential(*body, nn.Conv2d(32, CLASSES, 1), nn.Upsample(scale_factor=2, mode="bilinear"))


def loss_of(model, batch):
    return nn.functional.cross_entropy(model(batch["image"]), batch["mask"], ignore_index=IGNORE)


def batches_of(loader):
    """Epoch after epoch."""
    while True:
        yield from loader


def save(path, step, model, optimizer, loader):
    """A file that is there is whole, whenever the run is killed."""
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state | {"loader": loader.state_dict()}, path.with_suffix(".part"))
    os.replace(path.with_suffix(".part"), path)


def train(args, ranks):
    torch.manual_seed(0)
    loader = loader_of(args.folder, args.scale, ranks)
    model = network()
    state = torch.load(args.checkpoint, map_location="cpu") if args.checkpoint.exists() else None
    if state is not None:
        model.load_state_dict(state["model"])
        loader.load_state_dict(state["loader"])  # the same on every rank
    wrapped = ranks.wrap(model, sync_batchnorm=ranks.device.type == "cuda")  # torch has it for GPUs only
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=3e-3)
    if state is not None:
        optimizer.load_state_dict(state["optimizer"])
    batches = batches_of(loader)
    for step in range(0 if state is None else state["step"], args.steps):
        total, shapes = torch.zeros((), device=ranks.device), []
        for number in range(ACCUMULATE):
            batch = next(batches)
            with ranks.no_sync(wrapped, unless=number == ACCUMULATE - 1):
                loss = loss_of(wrapped, batch) / ACCUMULATE
                loss.backward()
            total += loss.detach()
            shapes.append("x".join(map(str, batch["image"].shape)))
        optimizer.step()
        optimizer.zero_grad()
        line = f"rank {ranks.rank} step {step} loss {total.item():.6f} of {' '.join(shapes)}\n"
        print(line, end="", flush=True)  # at once, so that the ranks' lines do not mix
        if ranks.is_first:
            save(args.checkpoint, step + 1, model, optimizer, loader)
    if ranks.is_first:
        print(loader.stats())


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("folder", type=Path)
    ask.add_argument("--steps", type=int, default=40)
    ask.add_argument("--scale", type=float, default=0.2, help="1 for short sides of 300 to 600 pixels")
    ask.add_argument("--device", choices=["cpu", "cuda"])
    ask.add_argument("--checkpoint", type=Path, default=Path("segmentation.pt"))
    args = ask.parse_args()
    with hr.distributed.start(device=args.device) as ranks:
        train(args, ranks)


if __name__ == "__main__":
    main()
