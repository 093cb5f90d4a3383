"""CIFAR-10's recipe on images in arrays: a crop of 32 with a padding of 4, and a flip.

    python examples/cifar.py images.npz --epochs 3

`images.npz` has `image`, uint8 [N, 32, 32, 3], and `label`; it is drawn if it is not there. From torchvision's copy:
`data = torchvision.datasets.CIFAR10(root)` and `hr.open({"image": data.data, "label": data.targets})`.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn

import headrace as hr

CLASSES = ("stripes", "columns", "rings", "squares")


def draw_images(path, count):
    """Write patterns of random colours, periods and phases, with noise."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:32, :32] / 32
    labels = rng.integers(0, len(CLASSES), count)
    images = np.empty((count, 32, 32, 3), np.uint8)
    for image, label in zip(images, labels, strict=True):
        centre, period, phase = rng.uniform(0.3, 0.7, 2), rng.uniform(2, 5), rng.uniform(0, 1)
        across, down = x - centre[0], y - centre[1]
        distance = (y, x, np.hypot(across, down), np.maximum(abs(across), abs(down)))[label]
        wave = 0.5 + 0.5 * np.sin(2 * np.pi * (period * distance + phase))
        noise = rng.normal(0, 12, image.shape)
        image[:] = (wave[..., None] * rng.integers(80, 256, 3) + noise).clip(0, 255)
    np.savez(path, image=images, label=labels)


def network():
    layers = []
    for channels, out in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(channels, out, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, len(CLASSES)))


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("file", type=Path)
    ask.add_argument("--epochs", type=int, default=3)
    ask.add_argument("--count", type=int, default=4096, help="images to draw")
    ask.add_argument("--batch-size", type=int, default=128)
    ask.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = ask.parse_args()
    if not args.file.exists():
        draw_images(args.file, args.count)
    torch.manual_seed(0)
    normalize = hr.Normalize(mean=(0.4914, 0.4822, 0.4465), std=(0.247, 0.2435, 0.2616))
    loader = hr.Loader(
        args.file,
        {"image": hr.Image(dtype="float32", normalize=normalize), "label": hr.Label()},
        view=hr.RandomCrop(32, padding=4, flip=0.5),
        batch_size=args.batch_size,
        shuffle=True,
        remainder="drop",
        device=args.device,
    )
    model = network().to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        loader.set_epoch(epoch)
        for step, batch in enumerate(loader, epoch * len(loader)):
            loss = nn.functional.cross_entropy(model(batch["image"]), batch["label"])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    print(loader.stats())


if __name__ == "__main__":
    main()
