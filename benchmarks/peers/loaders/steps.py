"""The same steps by torchvision for every loader that leaves decoding to its users: decode_jpeg, then transforms v2."""

import torch
from task import AREA, ASPECT, MEAN, SHORT_SIDE_PX, SIDE_PX, STD
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms import v2


def view(recipe):
    if recipe == "train":
        return [v2.RandomResizedCrop(SIDE_PX, scale=AREA, ratio=ASPECT, antialias=True), v2.RandomHorizontalFlip()]
    return [v2.Resize(SHORT_SIDE_PX, antialias=True), v2.CenterCrop(SIDE_PX)]


class Steps:
    """Turns the bytes of one JPEG into an image tensor [3, 224, 224]. An object, so that it reaches spawned workers."""

    def __init__(self, task):
        steps = view(task.recipe)
        if task.dtype == "float32":
            steps += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
        self.transform = v2.Compose(steps)

    def __call__(self, encoded):
        data = torch.frombuffer(bytearray(encoded), dtype=torch.uint8)
        return self.transform(decode_jpeg(data, mode=ImageReadMode.RGB))
