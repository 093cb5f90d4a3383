"""Super-resolution by 4 on pairs of images, as EDSR's and BasicSR's: crops, flips and turns of both at once.

    python examples/make_scenes.py scenes
    python examples/super_resolution.py scenes/images --steps 200    # stop it at any moment, and start it again

The small images are made at the start, beside the folder, by Pillow's bicubic filter. A crop of a small image and that
of its large one are the same window, in whole pixels of both files. The network is a small EDSR (Lim et al., "Enhanced
deep residual networks for single image super-resolution", CVPRW 2017).
"""

import argparse
import os
from pathlib import Path

import torch
from PIL import Image
from torch import nn

import headrace as hr

BATCH = 16
SCALE = 4


def write_pairs(folder):
    """Write each image, cut to a multiple of SCALE, and a small one of it."""
    large, small = (folder.with_name(f"{folder.name}_{name}") for name in ("gt", "lq"))
    for path in sorted(folder.iterdir()):
        with Image.open(path) as image:
            width, height = (side // SCALE for side in image.size)
            whole = image.convert("RGB").crop((0, 0, SCALE * width, SCALE * height))
        for to, picture in ((large, whole), (small, whole.resize((width, height), Image.Resampling.BICUBIC))):
            to.mkdir(exist_ok=True)
            picture.save(to / f"{path.stem}.png")
    return large, small


def loader_of(folder, crop, device):
    large, small = write_pairs(folder)
    return hr.Loader(
        hr.open({"lq": small, "gt": large}),
        {"lq": hr.Image(dtype="float32"), "gt": hr.Image(dtype="float32", scale=SCALE)},
        view=[hr.RandomCrop(crop, pad_if_needed=True, flip=0.5), hr.RandomQuarterTurn()],
        batch_size=BATCH,
        shuffle=True,
        seed=0,
        remainder="drop",
        device=device,
    )


class Network(nn.Module):
    def __init__(self, channels=32):
        super().__init__()
        self.head = nn.Conv2d(3, channels, 3, padding=1)
        layers = [nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1)]
        self.body = nn.Sequential(*layers)
        self.tail = nn.Sequential(nn.Conv2d(channels, 3 * SCALE**2, 3, padding=1), nn.PixelShuffle(SCALE))

    def forward(self, small):
        features = self.head(small)
        return self.tail(features + self.body(features))


def batches_of(loader):
    """Epoch after epoch."""
    while True:
        yield from loader


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("folder", type=Path)
    ask.add_argument("--steps", type=int, default=200)
    ask.add_argument("--crop", type=int, default=12, help="pixels of the small image; EDSR's is 48")
    ask.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    ask.add_argument("--checkpoint", type=Path, default=Path("super_resolution.pt"))
    args = ask.parse_args()
    torch.manual_seed(0)
    loader = loader_of(args.folder, args.crop, args.device)
    model = Network().to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    first = 0
    if args.checkpoint.exists():
        state = torch.load(args.checkpoint, map_location=args.device)
        first = state["step"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["loader"])
    for step, batch in zip(range(first, args.steps), batches_of(loader), strict=False):
        loss = nn.functional.l1_loss(model(batch["lq"]), batch["gt"])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step} loss {loss.item():.6f}", flush=True)
        state = {"step": step + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state | {"loader": loader.state_dict()}, args.checkpoint.with_suffix(".part"))
        os.replace(args.checkpoint.with_suffix(".part"), args.checkpoint)
    print(loader.stats())


if __name__ == "__main__":
    main()
