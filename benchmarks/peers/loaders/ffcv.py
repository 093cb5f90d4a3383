"""FFCV; variant "jpeg": re-encoded at quality 95, "raw": all pixels, "raw-256": pixels of a long side of 256."""

import numpy as np
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.basics import IntDecoder
from ffcv.fields.rgb_image import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage
from ffcv.writer import DatasetWriter
from PIL import Image
from task import AREA, ASPECT, MEAN, SHORT_SIDE_PX, SIDE_PX, STD

from .folder import samples

IMAGES = {
    "jpeg": {"write_mode": "jpg", "jpeg_quality": 95},
    "raw": {"write_mode": "raw"},
    "raw-256": {"write_mode": "raw", "max_resolution": SHORT_SIDE_PX},
}


class Photos:
    def __init__(self, photos):
        self.samples = samples(photos)

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        return Image.open(path).convert("RGB"), label


def prepare(photos, out, variant):
    fields = {"image": RGBImageField(**IMAGES[variant]), "label": IntField()}
    DatasetWriter(str(out / "photos.beton"), fields, num_workers=2).from_indexed_dataset(Photos(photos))


def batches(source, task, variant):
    size = (SIDE_PX, SIDE_PX)
    if task.recipe == "train":
        image = [RandomResizedCropRGBImageDecoder(size, scale=AREA, ratio=ASPECT), RandomHorizontalFlip()]
    else:
        image = [CenterCropRGBImageDecoder(size, ratio=SIDE_PX / SHORT_SIDE_PX)]
    if task.dtype == "float32":
        image.append(NormalizeImage(255 * np.array(MEAN), 255 * np.array(STD), np.float32))
    loader = Loader(
        str(source / "photos.beton"),
        batch_size=task.batch_size,
        num_workers=task.workers,
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=True,
        pipelines={"image": [*image, ToTensor(), ToTorchImage()], "label": [IntDecoder(), ToTensor(), Squeeze()]},
    )
    return iter(loader)
