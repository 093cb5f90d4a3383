"""Trains a small classifier on a Hugging Face dataset of images, with a transform set on it."""

import argparse
import os

import torch
from datasets import load_dataset
from torch import nn
from torch.utils.data import DataLoader
from torchvision.transforms import CenterCrop, Compose, Normalize, RandomHorizontalFlip, Resize, ToTensor

_train_transforms = Compose(
    [
        Resize(224),
        CenterCrop(224),
        RandomHorizontalFlip(),
        ToTensor(),
        Normalize(mean=[0.5, 0.5, 0.5], std=[0.5, 0.5, 0.5]),
    ]
)


def preprocess_train(example_batch):
    """Apply the transforms across a batch of examples."""
    example_batch["pixel_values"] = [_train_transforms(image.convert("RGB")) for image in example_batch["image"]]
    return example_batch


def collate_fn(examples):
    pixel_values = torch.stack([example["pixel_values"] for example in examples])
    labels = torch.tensor([example["label"] for example in examples])
    return {"pixel_values": pixel_values, "labels": labels}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--cache", help="folder of the prepared dataset; beside the data without it")
    args = parser.parse_args()

    cache = args.cache or os.path.abspath(args.data).rstrip("/") + ".cache"
    dataset = load_dataset("imagefolder", data_dir=args.data, split="train", cache_dir=cache)
    labels = dataset.features["label"].names
    dataset = dataset.with_transform(preprocess_train)
    loader = DataLoader(
        dataset, shuffle=True, collate_fn=collate_fn, batch_size=args.batch_size, num_workers=args.workers
    )
    model = nn.Sequential(nn.Conv2d(3, 16, 16, stride=16), nn.Flatten(2), nn.AdaptiveAvgPool1d(1), nn.Flatten())
    head = nn.Linear(16, len(labels))
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=5e-4)
    step = 0
    while step < args.steps:
        for batch in loader:
            loss = nn.functional.cross_entropy(head(model(batch["pixel_values"])), batch["labels"])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
