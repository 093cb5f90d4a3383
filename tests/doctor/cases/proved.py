"""A training that reads images from a tar: seeded, with as many oddities as are asked for.

python proved.py TAR [WORKERS] [--augment] [--hang PIPE]
"""

from __future__ import annotations

import argparse
import random
import tarfile
import time

import numpy as np
import torch
from PIL import Image
from quick_optimizer import Descent
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):  # type: ignore[type-arg]  # torch's own is not generic at run time
    def __init__(self, path: str, augment: bool) -> None:
        self.path = path
        self.augment = augment
        self.tar: tarfile.TarFile | None = None
        with tarfile.open(path) as tar:
            self.names = [member.name for member in tar.getmembers() if member.isfile()]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.tar is None:
            self.tar = tarfile.open(self.path)  # noqa: SIM115  (a worker's own, as datasets have it)
        file = self.tar.extractfile(self.names[index])
        image = Image.open(file).convert("RGB").resize((32, 32), Image.Resampling.BILINEAR)
        if self.augment and random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return torch.from_numpy(np.array(image)), index


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tar")
    parser.add_argument("workers", type=int, nargs="?", default=1)
    parser.add_argument("--augment", action="store_true")
    parser.add_argument("--hang", help="where there are two workers, after this named pipe was told")
    asked = parser.parse_args()
    torch.manual_seed(0)
    random.seed(0)
    loader = DataLoader(
        Photos(asked.tar, asked.augment), batch_size=4, shuffle=True, drop_last=True, num_workers=asked.workers
    )
    model = torch.nn.Linear(32 * 32 * 3, 2)
    optimizer = Descent(model.parameters(), lr=1e-6)
    for _ in range(1000):
        for images, _ in loader:
            if loader.num_workers == 2 and asked.hang:
                with open(asked.hang, "w") as pipe:
                    pipe.write("hanging")
                time.sleep(600)
            loss = model(images.flatten(1).float() / 255).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
