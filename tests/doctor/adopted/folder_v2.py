"""Trains a small classifier on a folder of classes, with torchvision's transforms v2 and mixup in collate."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, default_collate
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 7, stride=8)
        self.head = nn.Linear(8, classes)

    def forward(self, x):
        return self.head(self.stem(x).relu().mean((2, 3)))


def build_transform(size):
    return v2.Compose(
        [
            v2.PILToTensor(),
            v2.RandomResizedCrop(size, antialias=True),
            v2.RandomHorizontalFlip(0.5),
            v2.TrivialAugmentWide(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
            v2.RandomErasing(p=0.1),
        ]
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()

    dataset = ImageFolder(args.data, transform=build_transform(192))
    mixup = v2.MixUp(alpha=0.2, num_classes=len(dataset.classes))

    def collate_fn(batch):
        return mixup(*default_collate(batch))

    loader = DataLoader(
        dataset,
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        collate_fn=collate_fn,
        drop_last=True,
        persistent_workers=args.workers > 0,
    )
    model = Net(len(dataset.classes))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    step = 0
    while step < args.steps:
        for images, targets in loader:
            loss = nn.functional.cross_entropy(model(images), targets, label_smoothing=0.1)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            step += 1
            if step >= args.steps:
                break
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
