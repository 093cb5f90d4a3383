"""Photos of an S3 bucket, one `get_object` a sample, as tutorials of boto3 and PyTorch have it: 20 ms a request."""

from __future__ import annotations

import io

import boto3
import numpy as np
import torch
from PIL import Image
from store_link import PHOTOS, stored_photos
from torch.utils.data import DataLoader, Dataset

BATCH = 8


class S3Photos(Dataset):
    def __init__(self, bucket, keys, endpoint):
        self.bucket, self.keys, self.endpoint = bucket, keys, endpoint
        self.client = None

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, index):
        if self.client is None:  # one a worker
            self.client = boto3.client(
                "s3",
                endpoint_url=self.endpoint,
                aws_access_key_id="AKIAPLANTEDKEY",
                aws_secret_access_key="planted-secret-of-tests",
                region_name="us-east-1",
            )
        body = self.client.get_object(Bucket=self.bucket, Key=self.keys[index])["Body"].read()
        image = Image.open(io.BytesIO(body)).convert("RGB").resize((64, 64))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255, index % 10


def train(endpoint):
    keys = [f"photos/{number:05}.jpg" for number in range(PHOTOS)]
    loader = DataLoader(S3Photos("bucket", keys, endpoint), BATCH, shuffle=True, num_workers=2, persistent_workers=True)
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
