"""Trains a small depth model from one tar of PNG pairs; depth is normalised between its quantiles."""

import argparse
import io
import os
import random
import tarfile

import numpy as np
import torch
import torch.nn as nn
import torchvision.transforms.functional as TF
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class TarDepthDataset(Dataset):
    """RGB and 16-bit depth from one archive, opened in each worker at its first sample."""

    def __init__(self, path, size=(256, 320)):
        self.path = path
        self.size = size
        self._tar = None
        with tarfile.open(path) as tar:
            names = tar.getnames()
        self.keys = sorted(name[: -len(".rgb.png")] for name in names if name.endswith(".rgb.png"))

    def __len__(self):
        return len(self.keys)

    def _read(self, name):
        if self._tar is None:
            self._tar = tarfile.open(self.path)
        return self._tar.extractfile(name).read()

    def __getitem__(self, idx):
        key = self.keys[idx]
        image = Image.open(io.BytesIO(self._read(key + ".rgb.png"))).convert("RGB")
        depth = Image.open(io.BytesIO(self._read(key + ".depth.png")))
        depth = torch.from_numpy(np.array(depth).astype(np.float32))[None]

        image = TF.resize(TF.to_tensor(image), self.size, antialias=True)
        depth = nn.functional.interpolate(depth[None], self.size, mode="nearest")[0]
        if random.random() < 0.5:
            image, depth = TF.hflip(image), TF.hflip(depth)

        valid = depth > 0
        low = torch.quantile(depth[valid], 0.02)
        high = torch.quantile(depth[valid], 0.98)
        depth = ((depth - low) / (high - low)).clamp(0, 1)
        depth[~valid] = 0
        image = TF.normalize(image, [0.5, 0.5, 0.5], [0.5, 0.5, 0.5])
        return {"image": image, "depth": depth, "mask": valid}


def masked_l1(prediction, depth, mask):
    return (prediction - depth).abs()[mask].mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()

    dataset = TarDepthDataset(os.path.join(args.data, "depth.tar"))
    loader = DataLoader(dataset, args.batch_size, shuffle=True, num_workers=args.workers, drop_last=True)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 8, stride=8), nn.ReLU(), nn.Conv2d(8, 1, 1), nn.Upsample(scale_factor=8, mode="nearest")
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    while step < args.steps:
        for batch in loader:
            loss = masked_l1(model(batch["image"]), batch["depth"], batch["mask"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
