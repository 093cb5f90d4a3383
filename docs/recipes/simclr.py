"""SimCLR: two views of each image, with strong colour and blur. MoCo v2 differs in four numbers, given below.

python simclr.py imagenet/train
"""

import sys

import headrace as hr

SIMCLR = {"scale": (0.08, 1.0), "colour": (0.8, 0.8, 0.8, 0.2)}
MOCO_V2 = {"scale": (0.2, 1.0), "colour": (0.4, 0.4, 0.4, 0.1)}


def make_loader(path, batch_size=256, seed=0, *, size=224, settings=SIMCLR):
    kernel = size // 10 // 2 * 2 + 1  # a tenth of the side, odd
    augment = [
        hr.RandomApply([hr.ColorJitter(*settings["colour"])], p=0.8),
        hr.RandomGrayscale(0.2),
        hr.RandomApply([hr.GaussianBlur(kernel, sigma=(0.1, 2.0))], p=0.5),
    ]
    image = hr.Image(
        view=hr.RandomResizedCrop(size, scale=settings["scale"], flip=0.5),
        augment=augment,
        copies=2,
        dtype="float32",
    )
    return hr.Loader(path, {"image": image}, batch_size=batch_size, shuffle=True, seed=seed, remainder="drop")


if __name__ == "__main__":
    for batch in make_loader(sys.argv[1]):
        first, second = batch["image"].unbind(1)  # [256, 3, 224, 224] each
        print(first.shape, second.shape)
