"""Trains a small segmentation model on VOC, image and mask each with a transform of its own."""

import argparse

import numpy as np
import torch
from torch import nn, optim
from torch.utils.data import DataLoader
from torchvision import datasets, transforms
from torchvision.transforms import InterpolationMode

NUM_CLASSES = 21
SIZE = (256, 256)


def mask_to_tensor(mask):
    return torch.from_numpy(np.array(mask)).long()


def get_loader(root, batch_size, workers):
    image_transform = transforms.Compose(
        [
            transforms.Resize(SIZE),
            transforms.ToTensor(),
            transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
        ]
    )
    target_transform = transforms.Compose(
        [transforms.Resize(SIZE, interpolation=InterpolationMode.NEAREST), transforms.Lambda(mask_to_tensor)]
    )
    train_set = datasets.VOCSegmentation(
        root, year="2012", image_set="train", transform=image_transform, target_transform=target_transform
    )
    return DataLoader(train_set, batch_size=batch_size, shuffle=True, num_workers=workers, drop_last=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()

    loader = get_loader(args.data, args.batch_size, args.workers)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 8, stride=8), nn.ReLU(), nn.Conv2d(16, NUM_CLASSES, 1), nn.Upsample(scale_factor=8)
    )
    criterion = nn.CrossEntropyLoss(ignore_index=255)
    optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    step = 0
    while step < args.steps:
        for images, masks in loader:
            loss = criterion(model(images), masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
