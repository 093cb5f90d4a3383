"""torchvision's transforms v2 on uint8 tensors in the workers of torch's DataLoader, with the recipes' own settings."""

import torch
from task import GLOBAL_PX, IGNORE, LOCAL_PX, MASK_PX, MEAN, SIDE_PX, STD
from torch.utils.data import DataLoader, Dataset, default_collate
from torchvision.io import ImageReadMode, decode_image, decode_jpeg, read_file
from torchvision.transforms import InterpolationMode, v2
from torchvision.tv_tensors import Image, Mask

from .folder import mask_of, samples

FLOATS = (v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD))


def crop(size=SIDE_PX, **options):
    return [v2.RandomResizedCrop(size, antialias=True, **options), v2.RandomHorizontalFlip()]


def jitter(brightness, contrast, saturation, hue, grey):
    colour = v2.ColorJitter(brightness, contrast, saturation, hue)
    return [v2.RandomApply([colour], p=0.8), v2.RandomGrayscale(grey)]


def blur(kernel, p):
    return [v2.RandomApply([v2.GaussianBlur(kernel, (0.1, 2.0))], p=p)]


DINO = (0.4, 0.4, 0.2, 0.1, 0.2)
GLOBAL = [*crop(GLOBAL_PX, scale=(0.4, 1.0)), *jitter(*DINO)]
LOCAL = [*crop(LOCAL_PX, scale=(0.05, 0.4)), *jitter(*DINO), *blur(9, 0.5)]
VIEWS = {
    "train": [crop()],
    "jitter": [[*crop(), v2.ColorJitter(0.4, 0.4, 0.4, 0.1)]],
    "randaugment": [
        [*crop(), v2.RandAugment(2, 9, interpolation=InterpolationMode.BILINEAR), *FLOATS, v2.RandomErasing(0.25)]
    ],
    "simclr": [[*crop(), *jitter(0.8, 0.8, 0.8, 0.2, 0.2), *blur(23, 0.5)]] * 2,
    "dino": [[*GLOBAL, *blur(9, 1.0)], [*GLOBAL, *blur(9, 0.1), v2.RandomSolarize(128, p=0.2)], *[LOCAL] * 8],
    "mixup": [[*crop(), *FLOATS]],
    "cutmix": [[*crop(), *FLOATS]],
}
SEGMENT = [
    v2.RandomResize(MASK_PX // 2, MASK_PX * 2, antialias=True),
    v2.RandomCrop(MASK_PX, pad_if_needed=True, fill={Image: 0, Mask: IGNORE, "others": 0}),
    v2.RandomHorizontalFlip(),
    v2.RandomPhotometricDistort(),
]


def batches(source, task, variant):
    dataset = Pairs(source) if task.recipe == "segment" else Photos(source, task)
    mixing = {"mixup": v2.MixUp, "cutmix": v2.CutMix}.get(task.recipe)
    collate = None
    if mixing is not None:
        mix = mixing(alpha=1.0, num_classes=task.label_shape[0])
        collate = lambda each: mix(*default_collate(each))  # noqa: E731  # as torchvision's documentation has it
    options = {"batch_size": task.batch_size, "num_workers": task.workers, "collate_fn": collate}
    return iter(DataLoader(dataset, shuffle=True, drop_last=True, **options))


class Photos(Dataset):
    """One decode a sample, and each view's transforms of it."""

    def __init__(self, source, task):
        self.samples = samples(source)
        steps = VIEWS[task.recipe]
        if task.recipe == "train" and task.dtype == "float32":
            steps = [[*crop(), *FLOATS]]
        self.views = [v2.Compose(view) for view in steps]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        image = decode_jpeg(read_file(path), mode=ImageReadMode.RGB)
        crops = [view(image) for view in self.views]
        return (crops if len(crops) > 1 else crops[0]), label


class Pairs(Dataset):
    def __init__(self, source):
        self.samples = samples(source)
        self.transform = v2.Compose(SEGMENT)

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, _ = self.samples[index]
        image = Image(decode_jpeg(read_file(path), mode=ImageReadMode.RGB))
        mask = Mask(decode_image(read_file(mask_of(path)), mode=ImageReadMode.GRAY))
        image, mask = self.transform(image, mask)
        return image, mask.squeeze(0)
