"""Trains a small classifier on FashionMNIST, which torchvision holds in memory, on 90 % of it."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, random_split
from torchvision import datasets, transforms


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 3, stride=2)
        self.fc = nn.Linear(16 * 13 * 13, 10)

    def forward(self, x):
        return F.log_softmax(self.fc(torch.flatten(F.relu(self.conv(x)), 1)), dim=1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()

    transform = transforms.Compose(
        [
            transforms.RandomCrop(28, padding=4),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.1307,), (0.3081,)),
        ]
    )
    dataset = datasets.FashionMNIST(args.data, train=True, transform=transform)
    held_out = len(dataset) // 10
    generator = torch.Generator().manual_seed(args.seed)
    train_set, _ = random_split(dataset, [len(dataset) - held_out, held_out], generator=generator)
    loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, num_workers=args.workers)
    model = Net()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    step = 0
    while step < args.steps:
        for data, target in loader:
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            loss.backward()
            optimizer.step()
            step += 1
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
