"""ResNet-50 and ViT-S trained on a CUDA device: images a second with torch's DataLoader, and with the Loader.

    python benchmarks/device_training.py PHOTOS [--model resnet50] [--loader torch] [--workers 16] [--steps 60]
    headrace doctor -- python benchmarks/device_training.py PHOTOS

The script of most image classifiers: ImageFolder, RandomResizedCrop, flip, ToTensor, Normalize; pinned batches, copied
and normalised as in PyTorch's own ImageNet example; bfloat16, channels-last. `--loader headrace` delivers the same
batches normalised on the device; `--loader none` trains on one batch that lies there, the most that the model can do.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator
from itertools import islice, repeat
from pathlib import Path

import timm
import torch
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, DataLoader
from torchvision import datasets, transforms

import headrace as hr

MODELS = {"resnet50": "resnet50", "vit": "vit_small_patch16_224"}
CLASSES = 100
Batch = tuple[Tensor, Tensor]


def torch_batches(args: argparse.Namespace, count: int) -> Iterable[Batch]:
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    augment = transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(mean, std),
        ]
    )
    photos = datasets.ImageFolder(str(args.photos), augment)
    many = ConcatDataset([photos] * -(-count // len(photos)))
    return DataLoader(
        many, batch_size=args.batch, shuffle=True, num_workers=args.workers, pin_memory=True, drop_last=True
    )


def headrace_batches(args: argparse.Namespace, count: int) -> Iterator[Batch]:
    photos = hr.open(args.photos)
    fields = {"image": hr.Image(dtype="bfloat16", normalize=hr.IMAGENET), "label": hr.Label()}
    view = hr.RandomResizedCrop(224, flip=0.5)
    loader = hr.Loader(
        photos.select([number % len(photos) for number in range(count)]),
        fields, view=view, batch_size=args.batch, shuffle=True, remainder="drop", device="cuda", decode=args.decode,
    )  # fmt: skip
    for batch in loader:
        yield batch["image"], batch["label"]


def resident_batches(args: argparse.Namespace, count: int) -> Iterable[Batch]:
    images, labels = torch.randn(args.batch, 3, 224, 224), torch.zeros(args.batch, dtype=torch.long)
    return repeat((images.cuda(), labels.cuda()))


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("photos", type=Path)
    ask.add_argument("--model", choices=sorted(MODELS), default="resnet50")
    ask.add_argument("--loader", choices=("torch", "headrace", "none"), default="torch")
    ask.add_argument("--decode", choices=("core", "device"), default="core")
    ask.add_argument("--workers", type=int, default=16)
    ask.add_argument("--batch", type=int, default=256)
    ask.add_argument("--steps", type=int, default=60)
    ask.add_argument("--warmup", type=int, default=15)
    args = ask.parse_args()
    model: nn.Module = timm.create_model(MODELS[args.model], num_classes=CLASSES)
    model = model.cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    make = {"torch": torch_batches, "headrace": headrace_batches, "none": resident_batches}[args.loader]
    batches = make(args, (args.warmup + args.steps + 4) * args.batch)
    began = time.perf_counter()
    for number, (images, labels) in enumerate(islice(batches, args.warmup + args.steps)):
        if number == args.warmup:
            torch.cuda.synchronize()
            began = time.perf_counter()
        images = images.cuda(non_blocking=True).to(memory_format=torch.channels_last)
        labels = labels.cuda(non_blocking=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()
    rate = args.batch * args.steps / (time.perf_counter() - began)
    print(f"{args.model}, {args.loader} ({args.decode}): {rate:,.0f} images/s")


if __name__ == "__main__":
    main()
