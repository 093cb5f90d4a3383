"""Photos of a web server, opened by fsspec for each sample without workers, as its documentation has it."""

from __future__ import annotations

import fsspec
import numpy as np
import torch
from PIL import Image
from store_link import PHOTOS, stored_photos
from torch.utils.data import DataLoader, Dataset

BATCH = 8


class RemotePhotos(Dataset):
    def __init__(self, urls):
        self.urls = urls

    def __len__(self):
        return len(self.urls)

    def __getitem__(self, index):
        with fsspec.open(self.urls[index], "rb") as file:
            image = Image.open(file).convert("RGB").resize((64, 64))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255, index % 10


def train(endpoint):
    urls = [f"{endpoint}/bucket/photos/{number:05}.jpg?X-Amz-Signature=planted-secret" for number in range(PHOTOS)]
    loader = DataLoader(RemotePhotos(urls), BATCH, shuffle=True)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64 * 64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(10):
        for images, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()


if __name__ == "__main__":
    with stored_photos(latency_s=0.02) as endpoint:
        train(endpoint)
