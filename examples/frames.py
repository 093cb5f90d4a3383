"""Clips as folders of frames: which way does the square move? A random frame of each of 8 segments, as TSM samples.

    python examples/frames.py clips --steps 120

Draws the clips if the folder is not there. Each is 12 to 30 JPEGs, and all frames of a clip are cut by one window.
Features of a frame look at the frames before and after it by shifting channels (Lin et al., "TSM: Temporal shift module
for efficient video understanding", ICCV 2019).
"""

import argparse
import itertools
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

import headrace as hr

FRAMES, CLASSES, BATCH = 8, ("left", "right", "up", "down"), 16
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))


def draw_clips(folder, count, size):
    for number in range(count):
        rng = np.random.default_rng(number)
        way, frames = number % len(CLASSES), int(rng.integers(12, 31))
        clip = folder / CLASSES[way] / f"{number:04}"
        clip.mkdir(parents=True)
        side, colour, start = size // 5, rng.integers(60, 256, 3), rng.uniform(0.3, 0.5, 2)
        noise = rng.integers(0, 40, (size, size, 3), np.uint8)
        for frame in range(frames):
            at = start + np.array(MOVES[way]) * (0.25 * frame / frames)
            x, y = (at * (size - side)).astype(int)
            pixels = noise.copy()
            pixels[y : y + side, x : x + side] = colour
            Image.fromarray(pixels).save(clip / f"{frame}.jpg", quality=92)


def loader_of(folder, size, device):
    clips = sorted(path for path in folder.glob("*/*") if path.is_dir())
    columns = {
        "frames": [str(clip.relative_to(folder)) for clip in clips],
        "label": [CLASSES.index(clip.parent.name) for clip in clips],
    }
    image = hr.Image(dtype="float32", normalize=hr.IMAGENET)
    return hr.Loader(
        hr.open(columns, root=folder),
        {"frames": hr.Images(image, count=FRAMES, frames="segments"), "label": hr.Label()},
        view=hr.RandomResizedCrop(size, scale=(0.7, 1.0)),  # no flip: left would become right
        batch_size=BATCH,
        shuffle=True,
        remainder="drop",
        device=device,
    )


class Shift(nn.Module):
    """Moves an eighth of the channels one frame on, and an eighth one frame back."""

    def forward(self, values):
        clips = values.unflatten(0, (-1, FRAMES))
        part = clips.shape[2] // 8
        moved = clips.clone()
        moved[:, 1:, :part] = clips[:, :-1, :part]
        moved[:, :-1, part : 2 * part] = clips[:, 1:, part : 2 * part]
        return moved.flatten(0, 1)


def network():
    layers = []
    for channels, out in ((3, 16), (16, 32), (32, 32)):
        layers += [nn.Conv2d(channels, out, 3, stride=2, padding=1), nn.BatchNorm2d(out), nn.ReLU(), Shift()]
    return nn.Sequential(*layers, nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("folder", type=Path)
    ask.add_argument("--steps", type=int, default=120)
    ask.add_argument("--count", type=int, default=160, help="clips to draw")
    ask.add_argument("--size", type=int, default=56)
    ask.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = ask.parse_args()
    if not args.folder.exists():
        draw_clips(args.folder, args.count, args.size * 8 // 7)
    torch.manual_seed(0)
    loader = loader_of(args.folder, args.size, args.device)
    model, head = network().to(args.device), nn.Linear(32, len(CLASSES)).to(args.device)
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=2e-3)
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    for step, batch in enumerate(itertools.islice(batches, args.steps)):
        features = model(batch["frames"].flatten(0, 1)).unflatten(0, (-1, FRAMES)).mean(1)
        loss = nn.functional.cross_entropy(head(features), batch["label"])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    print(loader.stats())


if __name__ == "__main__":
    main()
