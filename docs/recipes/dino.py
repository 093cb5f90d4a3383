"""DINO: two global crops and eight local ones, each with draws of its own, from one decode of the image.

python dino.py imagenet/train
"""

import sys

import headrace as hr

COLOUR = [hr.RandomApply([hr.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8), hr.RandomGrayscale(0.2)]


def blur(p):
    return hr.RandomApply([hr.GaussianBlur(9, sigma=(0.1, 2.0))], p=p)


def crop(view, *augment, copies=None):
    return hr.Image(
        source="image",
        view=view,
        augment=[*COLOUR, *augment],
        copies=copies,
        dtype="float32",
        normalize=hr.IMAGENET,
    )


def make_loader(path, batch_size=64, seed=0, *, global_scale=(0.4, 1.0), local_scale=(0.05, 0.4), local_crops=8):
    large = hr.RandomResizedCrop(224, scale=global_scale, flip=0.5)
    small = hr.RandomResizedCrop(96, scale=local_scale, flip=0.5)
    fields = {
        "first": crop(large, blur(1.0)),
        "second": crop(large, blur(0.1), hr.RandomSolarize(128, p=0.2)),
        "local": crop(small, blur(0.5), copies=local_crops),
    }
    return hr.Loader(path, fields, batch_size=batch_size, shuffle=True, seed=seed, remainder="drop")


if __name__ == "__main__":
    for batch in make_loader(sys.argv[1]):
        crops = [batch["first"], batch["second"], *batch["local"].unbind(1)]  # as DINO's MultiCropWrapper takes them
        print([tuple(each.shape) for each in crops])
