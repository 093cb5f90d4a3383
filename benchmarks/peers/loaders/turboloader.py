"""TurboLoader's array path over a tar; variant "raw": over its own file of images decoded and squashed beforehand."""

import numpy as np
import turboloader
from task import SHORT_SIDE_PX, SIDE_PX

from .folder import samples, write_tar


def prepare(photos, out, variant):
    np.save(out / "labels.npy", [label for _, label in samples(photos)])
    write_tar(photos, out / "photos.tar")
    if variant == "raw":
        turboloader.preprocess_to_tbl(str(out / "photos.tar"), str(out / "photos.tbl"), SHORT_SIDE_PX, num_workers=2)
        (out / "photos.tar").unlink()


def batches(source, task, variant):
    labels = np.load(source / "labels.npy")
    loader = turboloader.DataLoader(
        str(source / ("photos.tbl" if variant == "raw" else "photos.tar")),
        batch_size=task.batch_size,
        num_workers=task.workers,
        shuffle=True,
        image_size=SIDE_PX,
        drop_last=True,
        output_format="pytorch",
        transform=turboloader.ImageNetNormalize(),
        train_aug=True,
        antialias=variant == "tar",
    )
    for images, found in loader:
        yield images, labels[found["indices"]]
