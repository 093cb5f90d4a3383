"""Colour on a device: the core's drawn operations, batched, beside torchvision v2 and kornia where they are installed.

    python benchmarks/device_colour.py [--device cuda] [--batch-size 256] [--size 224] [--rounds 5]

Two recipes on uint8 images that lie on the device: ColorJitter(0.4, 0.4, 0.4, 0.1), and SimCLR's colours and blur.
Milliseconds a batch, and images a second, medians over rounds in turn. What each does:

    headrace            each image's own draws, made by the core on the host; as the Loader does with
                        augment_on="device", and compiled ("device-compiled")
    draws alone         the part of that which the host does
    torchvision, batch  one draw for the whole batch, in one call
    torchvision, each   a draw for each image, in a loop, as in a Dataset
    kornia              each image's own draws; float images, and colours in its own arithmetic

--device cpu shows that it runs.
"""

from dataclasses import replace
from functools import partial

import torch
from harness import arguments, finish_device, median_s, require_device

import headrace as hr
from headrace import _core
from headrace.augment import BatchedChains, compile_augment
from headrace.device.colour_operations import run_chains

JITTER, SIMCLR = (0.4, 0.4, 0.4, 0.1), (0.8, 0.8, 0.8, 0.2)
KERNEL, SIGMA = 23, (0.1, 2.0)
WARM_UP, REPEATS = 3, 10
OURS = {
    "ColorJitter": [hr.ColorJitter(*JITTER)],
    "SimCLR": [
        hr.RandomApply([hr.ColorJitter(*SIMCLR)], p=0.8),
        hr.RandomGrayscale(0.2),
        hr.RandomApply([hr.GaussianBlur(KERNEL, SIGMA)], p=0.5),
    ],
}


def drawn(recipe, images, compiled=False):
    program, (height, width) = compile_augment("image", OURS[recipe]).native, images.shape[-2:]
    chains = [_core.draw_chain(program, 1, id_, 0, width=width, height=height) for id_ in range(len(images))]
    return BatchedChains.of(chains, compiled=compiled)


def augmented(recipe, images, compiled):
    chains = drawn(recipe, images, compiled)
    arrays = {name: torch.from_numpy(getattr(chains, name)) for name in ("rows", "numbers", "taps", "erasures")}
    run_chains(images, replace(chains, **{name: array.to(images.device) for name, array in arrays.items()}))


def ours(recipe, images):
    return {
        "headrace": partial(augmented, recipe, images, False),
        "headrace, compiled": partial(augmented, recipe, images, True),
        "draws alone": partial(drawn, recipe, images),
    }


def torchvision_work(recipe, images):
    from torchvision.transforms import v2

    steps = v2.ColorJitter(*JITTER)
    if recipe == "SimCLR":
        jitter, blur = v2.ColorJitter(*SIMCLR), v2.GaussianBlur(KERNEL, SIGMA)
        steps = v2.Compose([v2.RandomApply([jitter], 0.8), v2.RandomGrayscale(0.2), v2.RandomApply([blur], 0.5)])
    return {
        "torchvision, batch": lambda: steps(images),
        "torchvision, each": lambda: torch.stack([steps(image) for image in images]),
    }


def kornia_work(recipe, images):
    import kornia.augmentation as K  # noqa: N812  # as its documentation has it

    steps = K.ColorJitter(*JITTER, p=1.0)
    if recipe == "SimCLR":
        blur = K.RandomGaussianBlur((KERNEL, KERNEL), SIGMA, p=0.5)
        steps = torch.nn.Sequential(K.ColorJitter(*SIMCLR, p=0.8), K.RandomGrayscale(p=0.2), blur)
    floats = images.float() / 255
    return {"kornia": lambda: steps(floats)}


def repeats(work, device, count):
    for _ in range(count):
        work()
    finish_device(device)


def main():
    args = arguments(__doc__, device="cuda", batch_size=256, size=224, rounds=5)
    require_device(args.device)
    shape = (args.batch_size, 3, args.size, args.size)
    images = torch.randint(0, 256, shape, dtype=torch.uint8).to(args.device, memory_format=torch.channels_last)
    for recipe in OURS:
        works = {}
        for make in (ours, torchvision_work, kornia_work):
            try:
                works |= make(recipe, images)
            except ImportError as error:
                print(f"{recipe}: left out, {error}")
        for work in works.values():
            repeats(work, args.device, WARM_UP)
        times = median_s(
            {name: partial(repeats, work, args.device, REPEATS) for name, work in works.items()}, args.rounds
        )
        print(f"{recipe}, uint8 {list(shape)}, medians of {args.rounds} rounds")
        for name, time_s in times.items():
            ms = time_s / REPEATS * 1e3
            print(f"  {name:<20}{ms:>10.2f} ms a batch {args.batch_size / ms * 1e3:>12,.0f} images/s")


if __name__ == "__main__":
    main()
