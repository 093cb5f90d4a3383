"""Trains a small classifier on a folder of classes, with timm's augmentation policy."""

import argparse

import torch
import torch.nn as nn
from timm.data import create_transform
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder


def build_dataset(args):
    transform = create_transform(
        input_size=192,
        is_training=True,
        color_jitter=0.3,
        auto_augment="rand-m7-mstd0.5-inc1",
        interpolation="bicubic",
        re_prob=0.25,
        re_mode="pixel",
        re_count=1,
    )
    return ImageFolder(args.data, transform=transform)


def train_one_epoch(model, criterion, loader, optimizer, steps):
    for samples, targets in loader:
        loss = criterion(model(samples), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps -= 1
        if steps == 0:
            break
    return steps


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()

    dataset_train = build_dataset(args)
    sampler_train = torch.utils.data.RandomSampler(dataset_train)
    data_loader_train = DataLoader(
        dataset_train,
        sampler=sampler_train,
        batch_size=args.batch_size,
        num_workers=args.workers,
        pin_memory=torch.cuda.is_available(),
        drop_last=True,
    )
    model = nn.Sequential(
        nn.Conv2d(3, 8, 7, stride=8), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.05)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    left = args.steps
    while left:
        left = train_one_epoch(model, criterion, data_loader_train, optimizer, left)
