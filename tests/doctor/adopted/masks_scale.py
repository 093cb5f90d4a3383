"""Trains a small segmentation model: image and mask together through random scale, crop and flip."""

import argparse
import os
import random

import numpy as np
import torch
import torch.nn as nn
from PIL import Image, ImageOps
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

CROP = 256
IGNORE = 255


def sync_transform(image, mask, scales=(0.5, 2.0)):
    if random.random() < 0.5:
        image = image.transpose(Image.FLIP_LEFT_RIGHT)
        mask = mask.transpose(Image.FLIP_LEFT_RIGHT)
    scale = random.uniform(*scales)
    width, height = int(image.width * scale), int(image.height * scale)
    image = image.resize((width, height), Image.BILINEAR)
    mask = mask.resize((width, height), Image.NEAREST)
    if min(width, height) < CROP:
        right, bottom = max(CROP - width, 0), max(CROP - height, 0)
        image = ImageOps.expand(image, border=(0, 0, right, bottom), fill=0)
        mask = ImageOps.expand(mask, border=(0, 0, right, bottom), fill=IGNORE)
    x, y = random.randint(0, image.width - CROP), random.randint(0, image.height - CROP)
    return image.crop((x, y, x + CROP, y + CROP)), mask.crop((x, y, x + CROP, y + CROP))


class SegmentationDataset(Dataset):
    def __init__(self, root):
        self.images = os.path.join(root, "images")
        self.masks = os.path.join(root, "masks")
        self.names = sorted(os.path.splitext(name)[0] for name in os.listdir(self.images))
        self.to_tensor = transforms.Compose(
            [transforms.ToTensor(), transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]
        )

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        name = self.names[index]
        image = Image.open(os.path.join(self.images, name + ".jpg")).convert("RGB")
        mask = Image.open(os.path.join(self.masks, name + ".png"))
        image, mask = sync_transform(image, mask)
        return self.to_tensor(image), torch.from_numpy(np.array(mask)).long()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()

    loader = DataLoader(
        SegmentationDataset(args.data), args.batch_size, shuffle=True, num_workers=args.workers, drop_last=True
    )
    model = nn.Sequential(nn.Conv2d(3, 8, 8, stride=8), nn.ReLU(), nn.Conv2d(8, 5, 1), nn.Upsample(scale_factor=8))
    criterion = nn.CrossEntropyLoss(ignore_index=IGNORE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    step = 0
    while step < args.steps:
        for image, mask in loader:
            loss = criterion(model(image), mask)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
