"""ResNet-50 and ViT-S trained on a CUDA device: images a second with torch's DataLoader, and with the Loader.

    python benchmarks/device_training.py PHOTOS [--model resnet50] [--loader torch] [--workers 16] [--steps 60]
    headrace doctor -- python benchmarks/device_training.py PHOTOS

The script of most image classifiers: ImageFolder, RandomResizedCrop, flip, ToTensor, Normalize; pinned batches, copied
and normalised as in PyTorch's own ImageNet example; bfloat16, channels-last. `--loader headrace` delivers the same
batches normalised on the device; `--loader none` trains on one batch that lies there, the most that the model can do.
"""

import time
from itertools import islice, repeat

import timm
import torch
from harness import arguments, repeated
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader
from torchvision import datasets, transforms

import headrace as hr

MODELS = {"resnet50": "resnet50", "vit": "vit_small_patch16_224"}


def torch_batches(args, count):
    augment = transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    photos = datasets.ImageFolder(str(args.photos), augment)
    many, options = ConcatDataset([photos] * -(-count // len(photos))), {"pin_memory": True, "drop_last": True}
    return DataLoader(many, batch_size=args.batch, shuffle=True, num_workers=args.workers, **options)


def headrace_batches(args, count):
    fields = {"image": hr.Image(dtype="bfloat16", normalize=hr.IMAGENET), "label": hr.Label()}
    settings = {"shuffle": True, "remainder": "drop", "device": "cuda", "decode": args.decode}
    view = hr.RandomResizedCrop(224, flip=0.5)
    loader = hr.Loader(repeated(args.photos, count), fields, view=view, batch_size=args.batch, **settings)
    return ((batch["image"], batch["label"]) for batch in loader)


def resident_batches(args, count):
    return repeat((torch.randn(args.batch, 3, 224, 224).cuda(), torch.zeros(args.batch, dtype=torch.long).cuda()))


LOADERS = {"torch": torch_batches, "headrace": headrace_batches, "none": resident_batches}


def main():
    args = arguments(
        __doc__, "photos", model=tuple(MODELS), loader=tuple(LOADERS), decode=("core", "device"), workers=16, batch=256,
        steps=60, warmup=15,
    )  # fmt: skip
    model = timm.create_model(MODELS[args.model], num_classes=100).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    batches, began = LOADERS[args.loader](args, (args.warmup + args.steps + 4) * args.batch), time.perf_counter()
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
