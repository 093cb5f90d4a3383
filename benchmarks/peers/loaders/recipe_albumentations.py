"""albumentations over OpenCV in the workers of torch's DataLoader, which stack NCHW tensors from `ToTensorV2`."""

import albumentations as A  # noqa: N812  # as its documentation has it
import cv2
from albumentations.pytorch import ToTensorV2
from task import GLOBAL_PX, IGNORE, LOCAL_PX, MASK_PX, MEAN, SIDE_PX, STD
from torch.utils.data import DataLoader, Dataset

from .folder import mask_of, samples

FLOATS = [A.Normalize(MEAN, STD)]
MAGNITUDE = 9 / 30  # of RandAugment's ranges


def crop(size=SIDE_PX, **options):
    return [A.RandomResizedCrop((size, size), **options), A.HorizontalFlip(p=0.5)]


def jitter(brightness, contrast, saturation, hue, grey):
    return [A.ColorJitter(brightness, contrast, saturation, hue, p=0.8), A.ToGray(p=grey)]


def blur(kernel, p):
    return [A.GaussianBlur(blur_limit=(kernel, kernel), sigma_limit=(0.1, 2.0), p=p)]


def randaugment():
    """RandAugment(2, 9) of albumentations' parts: it has no policy of that name."""

    def either(value):
        return (-value, value)

    enhanced = (1 - 0.9 * MAGNITUDE, 1 + 0.9 * MAGNITUDE)
    same = {"brightness": 0, "contrast": 0, "saturation": 0, "hue": 0}
    shear, shift = 0.3 * MAGNITUDE * 57.3, 150 / 331 * MAGNITUDE
    operations = [
        A.NoOp(p=1),
        A.Affine(shear={"x": either(shear), "y": 0}, p=1),
        A.Affine(shear={"x": 0, "y": either(shear)}, p=1),
        A.Affine(translate_percent={"x": either(shift), "y": 0}, p=1),
        A.Affine(translate_percent={"x": 0, "y": either(shift)}, p=1),
        A.Affine(rotate=either(30 * MAGNITUDE), p=1),
        *(A.ColorJitter(**(same | {name: enhanced}), p=1) for name in ("brightness", "saturation", "contrast")),
        A.Sharpen(alpha=(0, 0.9 * MAGNITUDE), p=1),
        A.Posterize(num_bits=7, p=1),
        A.Solarize(threshold_range=(1 - MAGNITUDE, 1 - MAGNITUDE), p=1),
        A.AutoContrast(p=1),
        A.Equalize(p=1),
    ]
    return [A.SomeOf(operations, n=2, replace=True, p=1)]


DINO = (0.4, 0.4, 0.2, 0.1, 0.2)
GLOBAL = [*crop(GLOBAL_PX, scale=(0.4, 1.0)), *jitter(*DINO)]
LOCAL = [*crop(LOCAL_PX, scale=(0.05, 0.4)), *jitter(*DINO), *blur(9, 0.5)]
VIEWS = {
    "train": [crop()],
    "jitter": [[*crop(), A.ColorJitter(0.4, 0.4, 0.4, 0.1, p=1)]],
    "randaugment": [[*crop(), *randaugment(), *FLOATS, A.Erasing(p=0.25)]],
    "simclr": [[*crop(), *jitter(0.8, 0.8, 0.8, 0.2, 0.2), *blur(23, 0.5)]] * 2,
    "dino": [[*GLOBAL, *blur(9, 1.0)], [*GLOBAL, *blur(9, 0.1), A.Solarize((0.5, 0.5), p=0.2)], *[LOCAL] * 8],
    "segment": [
        [
            A.SmallestMaxSize(max_size=range(MASK_PX // 2, MASK_PX * 2 + 1)),
            A.RandomCrop(MASK_PX, MASK_PX, pad_if_needed=True, fill_mask=IGNORE),
            A.HorizontalFlip(p=0.5),
            A.ColorJitter((0.875, 1.125), (0.5, 1.5), (0.5, 1.5), (-0.05, 0.05), p=0.5),
        ]
    ],
}


def batches(source, task, variant):
    photos = Photos(source, task)
    options = {"batch_size": task.batch_size, "num_workers": task.workers, "worker_init_fn": one_thread}
    return iter(DataLoader(photos, shuffle=True, drop_last=True, **options))


def one_thread(_worker):
    cv2.setNumThreads(0)  # the workers are the parallelism


class Photos(Dataset):
    """One decode a sample, and each view's transforms of it; or an image and its mask."""

    def __init__(self, source, task):
        self.samples, self.paired = samples(source), task.recipe == "segment"
        normalized = task.dtype == "float32" and task.recipe == "train"
        self.views = [A.Compose([*view, *(FLOATS if normalized else []), ToTensorV2()]) for view in VIEWS[task.recipe]]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        image = cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB)
        if self.paired:
            both = self.views[0](image=image, mask=cv2.imread(mask_of(path), cv2.IMREAD_GRAYSCALE))
            return both["image"], both["mask"]
        crops = [view(image=image)["image"] for view in self.views]
        return (crops if len(crops) > 1 else crops[0]), label
