"""Shards streamed by `pipe:curl`, as webdataset's documentation has it, over a link of 0.4 MB/s."""

from __future__ import annotations

import io

import numpy as np
import torch
import webdataset as wds
from PIL import Image
from store_link import SHARDS, stored_photos
from torch.utils.data import DataLoader

BATCH = 8


def decode(sample):
    image = Image.open(io.BytesIO(sample["jpg"])).convert("RGB").resize((64, 64))
    return torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255, int(sample["cls"])


def train(endpoint):
    shards = f"{endpoint}/bucket/shards/train-{{000000..{SHARDS - 1:06}}}.tar"
    url = f"pipe:curl -L -s -H 'Authorization: Bearer planted-secret' {shards} || true"
    dataset = wds.WebDataset(url, shardshuffle=SHARDS).shuffle(40).map(decode).repeat()
    loader = DataLoader(dataset, BATCH, num_workers=2)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64 * 64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for number, (images, labels) in enumerate(loader):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        if number == 300:
            break


if __name__ == "__main__":
    with stored_photos(latency_s=0.02, bandwidth=4e5) as endpoint:
        train(endpoint)
