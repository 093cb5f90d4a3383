"""Trains a small classifier with noise and squares of its own behind torchvision's transforms."""

import argparse
import os

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

EXTENSIONS = (".jpg", ".jpeg", ".png")


class AddGaussianNoise:
    def __init__(self, mean=0.0, std=1.0):
        self.mean = mean
        self.std = std

    def __call__(self, tensor):
        return tensor + torch.randn(tensor.size()) * self.std + self.mean


def cutout(img, length=32):
    h, w = img.size(1), img.size(2)
    mask = torch.ones(h, w)
    y, x = int(torch.randint(h, ())), int(torch.randint(w, ()))
    mask[max(y - length // 2, 0) : y + length // 2, max(x - length // 2, 0) : x + length // 2] = 0
    return img * mask


class ImageDataset(Dataset):
    def __init__(self, root, transform=None):
        self.transform = transform
        self.classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
        self.samples = []
        for label, name in enumerate(self.classes):
            for file in sorted(os.listdir(os.path.join(root, name))):
                if file.lower().endswith(EXTENSIONS):
                    self.samples.append((os.path.join(root, name, file), label))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, idx):
        path, label = self.samples[idx]
        image = Image.open(path).convert("RGB")
        if self.transform is not None:
            image = self.transform(image)
        image = cutout(image, length=48)
        return image, label


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()

    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(160),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
            AddGaussianNoise(0.0, 0.05),
        ]
    )
    dataset = ImageDataset(args.data, transform)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, num_workers=args.workers, drop_last=True)
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
