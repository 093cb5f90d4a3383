"""DeepLab or SegFormer on ADE20K, as MMSegmentation trains them: scale, crop, flip, photometric distortion.

    python segmentation.py ADEChallengeData2016

The folder has images/training/NAME.jpg and annotations/training/NAME.png. Class 0 of ADE20K is "other" and is
ignored, so that the 150 classes are numbered from 0 (`reduce_zero_label`).
"""

import sys
from pathlib import Path

import headrace as hr

CLASSES = 150
REDUCED = [255, *range(CLASSES)]  # 0 becomes 255, and 1 … 150 become 0 … 149


def make_loader(path, batch_size=16, seed=0, *, size=512, short_side=512):
    path = Path(path)
    pairs = hr.open({"image": path / "images" / "training", "mask": path / "annotations" / "training"})
    scales = tuple(range(short_side // 2, short_side * 2 + 1, 32))
    return hr.Loader(
        pairs,
        {
            "image": hr.Image(dtype="float32", normalize=hr.IMAGENET),
            "mask": hr.Mask(remap=REDUCED, ignore=255, dtype="int64"),
        },
        view=[hr.RandomScale(scales), hr.RandomCrop(size, pad_if_needed=True, flip=0.5)],
        augment=[hr.RandomPhotometricDistort()],  # the mask has no colours: it stays as it is
        batch_size=batch_size,
        shuffle=True,
        seed=seed,
        remainder="drop",
    )


if __name__ == "__main__":
    for batch in make_loader(sys.argv[1]):
        print(batch["image"].shape, batch["mask"].shape)
        # loss = cross_entropy(model(batch["image"]), batch["mask"], ignore_index=255)
