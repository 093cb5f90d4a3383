"""Photos of a store, read as documentation has it, 20 ms a request:

python remote_photos.py boto3 | fsspec | pipe
"""

from __future__ import annotations

import io
import itertools
import sys

import numpy as np
import torch
from PIL import Image
from store_link import PHOTOS, SHARDS, stored_photos
from torch.utils.data import DataLoader, Dataset

BATCH = 8
NAMES = [f"photos/{number:05}.jpg" for number in range(PHOTOS)]


def pixels(file):
    image = Image.open(file).convert("RGB").resize((64, 64))
    return torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255


class RemotePhotos(Dataset):
    """Photos of a web server, opened by fsspec for each sample."""

    def __init__(self, endpoint):
        self.endpoint = endpoint

    def __len__(self):
        return PHOTOS

    def __getitem__(self, index):
        import fsspec

        url = f"{self.endpoint}/bucket/{NAMES[index]}?X-Amz-Signature=planted-secret"
        with fsspec.open(url, "rb") as file:
            return pixels(file), index % 10


class S3Photos(RemotePhotos):
    """Photos of an S3 bucket, one `get_object` a sample."""

    client = None

    def __getitem__(self, index):
        if self.client is None:  # one a worker
            import boto3

            self.client = boto3.client(
                "s3",
                endpoint_url=self.endpoint,
                aws_access_key_id="AKIAPLANTEDKEY",
                aws_secret_access_key="planted-secret-of-tests",
                region_name="us-east-1",
            )
        body = self.client.get_object(Bucket="bucket", Key=NAMES[index])["Body"].read()
        return pixels(io.BytesIO(body)), index % 10


def decode(sample):
    return pixels(io.BytesIO(sample["jpg"])), int(sample["cls"])


def shards(endpoint):
    """Stream shards by `pipe:curl`."""
    import webdataset as wds

    shards = f"{endpoint}/bucket/shards/train-{{000000..{SHARDS - 1:06}}}.tar"
    url = f"pipe:curl -L -s -H 'Authorization: Bearer planted-secret' {shards} || true"
    return wds.WebDataset(url, shardshuffle=SHARDS).shuffle(40).map(decode).repeat()


LOADERS = {
    "boto3": lambda endpoint: DataLoader(S3Photos(endpoint), BATCH, True, num_workers=2, persistent_workers=True),
    "fsspec": lambda endpoint: DataLoader(RemotePhotos(endpoint), BATCH, shuffle=True),
    "pipe": lambda endpoint: DataLoader(shards(endpoint), BATCH, num_workers=2),
}


def train(loader):
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64 * 64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for images, labels in itertools.islice(itertools.chain.from_iterable(itertools.repeat(loader, 10)), 300):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()


if __name__ == "__main__":
    way = sys.argv[1]
    with stored_photos(latency_s=0.02, bandwidth=4e5 if way == "pipe" else 0.0) as endpoint:
        train(LOADERS[way](endpoint))
