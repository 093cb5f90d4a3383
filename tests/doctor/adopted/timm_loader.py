"""Trains a small classifier with timm's dataset and loader, as its train.py builds them."""

import argparse

import torch
import torch.nn as nn
from timm.data import create_dataset, create_loader

parser = argparse.ArgumentParser()
parser.add_argument("data_dir")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("-b", "--batch-size", type=int, default=32)
parser.add_argument("-j", "--workers", type=int, default=1)
parser.add_argument("--device", default="cpu")


def main():
    args = parser.parse_args()
    device = torch.device(args.device)
    dataset_train = create_dataset("", root=args.data_dir, split="train", is_training=True, batch_size=args.batch_size)
    loader_train = create_loader(
        dataset_train,
        input_size=(3, 192, 192),
        batch_size=args.batch_size,
        is_training=True,
        re_prob=0.1,
        color_jitter=0.4,
        hflip=0.5,
        interpolation="random",
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        num_workers=args.workers,
        pin_memory=False,
        device=device,
    )
    model = nn.Sequential(
        nn.Conv2d(3, 8, 7, stride=8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.1)
    updates = 0
    while updates < args.steps:
        for input, target in loader_train:
            loss = loss_fn(model(input), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            updates += 1
            if updates == args.steps:
                break


if __name__ == "__main__":
    main()
