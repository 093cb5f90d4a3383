"""Depth from one picture, on pairs that lie in one tar: accumulation over 16 batches, and resume in mid-epoch.

    python examples/make_scenes.py scenes
    python examples/depth.py scenes --steps 40    # stop it at any moment, and start it again: it goes on

A step is one of the optimizer's: 16 batches of 2 pairs. After each, model, optimizer and the loader's position are
saved. What a killed run had done of the next step is done again, on the same batches, so that the losses are those of a
run that was never stopped. Depth is normalised by its own quantiles, as Marigold's is (Ke et al., CVPR 2024).
"""

import argparse
import os
from pathlib import Path

import torch
from torch import nn

import headrace as hr

BATCH = 2
ACCUMULATE = 16
PICTURE = hr.Image(dtype="float32", normalize=hr.Normalize(mean=(0.5,) * 3, std=(0.5,) * 3), filter="nearest")
DEPTH = hr.Depth(scale=1 / 1000, far=65.0, normalize=hr.Quantiles(0.02, 0.98))  # metres, then -1…1


def loader_of(folder, size, device):
    return hr.Loader(
        hr.open(folder / "list.txt", root=folder / "pairs.tar", columns=["rgb", "depth"]),
        {"rgb": PICTURE, "depth": DEPTH},
        view=hr.Resize(size, flip=0.5),
        batch_size=BATCH,
        shuffle=True,
        seed=0,
        remainder="drop",  # so that all batches weigh the same
        device=device,
    )


def network():
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=2, dilation=2),
        nn.ReLU(),
        nn.Conv2d(32, 16, 3, padding=1),
        nn.PixelShuffle(4),  # back to the picture's size
    )


def loss_of(model, batch):
    """Mean error where the depth is known; elsewhere, the file says nothing."""
    error, valid = (model(batch["rgb"]) - batch["depth"]).abs(), batch["depth_valid"]
    return (error * valid).sum() / valid.sum().clamp(min=1)


def batches_of(loader):
    """Epoch after epoch."""
    while True:
        yield from loader


def save(path, step, model, optimizer, loader):
    """A file that is there is whole, whenever the run is killed."""
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state | {"loader": loader.state_dict()}, path.with_suffix(".part"))
    os.replace(path.with_suffix(".part"), path)


def train(args):
    torch.manual_seed(0)
    loader = loader_of(args.folder, tuple(args.size), args.device)
    model = network().to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    done = 0
    if args.checkpoint.exists():
        state = torch.load(args.checkpoint, map_location=args.device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["loader"])
        done = state["step"]
    batches = batches_of(loader)
    for step in range(done, args.steps):
        total = torch.zeros((), device=args.device)
        for _ in range(ACCUMULATE):
            loss = loss_of(model, next(batches)) / ACCUMULATE
            loss.backward()
            total += loss.detach()
        optimizer.step()
        optimizer.zero_grad()
        save(args.checkpoint, step + 1, model, optimizer, loader)
        print(f"step {step} epoch {loader.epoch} loss {total.item():.6f}", flush=True)
    print(loader.stats())


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("folder", type=Path)
    ask.add_argument("--steps", type=int, default=40)
    ask.add_argument("--size", type=int, nargs=2, default=(48, 64), help="height and width; Marigold's is 480 640")
    ask.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    ask.add_argument("--checkpoint", type=Path, default=Path("depth.pt"))
    train(ask.parse_args())


if __name__ == "__main__":
    main()
