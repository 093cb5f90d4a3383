"""A folder of classes, read by a Dataset of the script's own with Pillow: what every epoch trained on is printed."""

import argparse
import os

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __init__(self, root):
        self.files = []
        self.classes = sorted(os.listdir(root))
        for label, name in enumerate(self.classes):
            for file in sorted(os.listdir(os.path.join(root, name))):
                self.files.append((os.path.join(root, name, file), label))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        path, label = self.files[index]
        image = Image.open(path).convert("RGB").resize((96, 96), Image.BILINEAR)
        pixels = np.asarray(image, dtype=np.float32) / 255
        return torch.from_numpy(pixels).permute(2, 0, 1), label


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()

    photos = Photos(args.data)
    loader = DataLoader(photos, batch_size=8, shuffle=True, num_workers=args.workers)
    model = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(48, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(args.epochs):
        seen = []
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += zip(labels.tolist(), images.mean((1, 2, 3)).tolist(), strict=True)
        for label, mean in sorted(seen):
            print(f"epoch {epoch}: {label} {mean:.3f}")


if __name__ == "__main__":
    main()
