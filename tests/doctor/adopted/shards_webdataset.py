"""Trains a small classifier from shards by a webdataset pipeline."""

import argparse
import glob
import os

import torch
import torch.nn as nn
import webdataset as wds
from torchvision import transforms


def make_loader(args):
    preprocess = transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
        ]
    )
    urls = sorted(glob.glob(os.path.join(args.data, "train-*.tar")))
    dataset = (
        wds.WebDataset(urls, shardshuffle=len(urls), resampled=False, empty_check=False)
        .shuffle(500)
        .decode("pil")
        .to_tuple("jpg", "cls")
        .map_tuple(preprocess, int)
        .batched(args.batch_size, partial=False)
    )
    return wds.WebLoader(dataset, batch_size=None, shuffle=False, num_workers=args.workers)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()

    loader = make_loader(args)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 7, stride=8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    step = 0
    while step < args.steps:
        for images, labels in loader:
            loss = criterion(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
