"""Classification of folders of images: random crops to train on, the middle of each image to validate.

    python examples/make_scenes.py scenes
    python examples/classify.py scenes/classes --epochs 20

Batches come on the device (`device=`): with CUDA they are copied beside the step, as bytes, and become floats there.
"""

import argparse
from pathlib import Path

import torch
from torch import nn

import headrace as hr

BATCH = 16
FIELDS = {"image": hr.Image(dtype="float32", normalize=hr.IMAGENET), "label": hr.Label()}


def training_loader(folder, size, device):
    view = hr.RandomResizedCrop(size, scale=(0.4, 1.0), flip=0.5)
    return hr.Loader(folder, FIELDS, view=view, batch_size=BATCH, shuffle=True, seed=0, device=device)


def validation_loader(folder, size, device):
    view = [hr.Resize(size * 8 // 7), hr.CenterCrop(size)]  # 256 and 224, where the size is 224
    return hr.Loader(folder, FIELDS, view=view, batch_size=BATCH, device=device)


def network(classes):
    layers = []
    for channels, out in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(channels, out, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * 64, classes))


def train_epoch(model, optimizer, loader):
    model.train()
    for step, batch in enumerate(loader):
        loss = nn.functional.cross_entropy(model(batch["image"]), batch["label"])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = [(model(batch["image"]).argmax(1) == batch["label"]).float() for batch in loader]
    return torch.cat(right).mean().item()


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("folder", type=Path)
    ask.add_argument("--epochs", type=int, default=20)
    ask.add_argument("--size", type=int, default=56)
    ask.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = ask.parse_args()
    torch.manual_seed(0)
    training = training_loader(args.folder / "train", args.size, args.device)
    validation = validation_loader(args.folder / "val", args.size, args.device)
    model = network(len(training.dataset.classes)).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        training.set_epoch(epoch)
        train_epoch(model, optimizer, training)
        print(f"epoch {epoch} accuracy {accuracy(model, validation):.3f}", flush=True)
    print(training.stats())


if __name__ == "__main__":
    main()
