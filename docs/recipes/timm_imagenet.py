"""timm's ImageNet training: the augmentations of one command line.

train.py imagenet --aa rand-m9-mstd0.5-inc1 --reprob 0.25 --remode pixel --mixup 0.8 --cutmix 1.0 --aug-repeats 3
         --smoothing 0.1

python timm_imagenet.py imagenet/train
"""

import sys

import headrace as hr

SMOOTHING = 0.1
MIX = hr.RandomChoice([hr.MixUp(alpha=0.8, label_smoothing=SMOOTHING), hr.CutMix(alpha=1.0, label_smoothing=SMOOTHING)])


def make_loader(path, batch_size=256, seed=0, *, size=224, aa="rand-m9-mstd0.5-inc1", reprob=0.25, repeats=3):
    image = hr.Image(
        dtype="float32",
        normalize=hr.IMAGENET,
        augment=[aa, hr.RandomErasing(reprob, scale=(0.02, 1 / 3), ratio=(0.3, 1 / 0.3), value="random")],
    )
    return hr.Loader(
        path,
        {"image": image, "label": hr.Label()},
        view=hr.RandomResizedCrop(size, flip=0.5),
        batch_size=batch_size,
        batch=MIX,
        repeats=repeats,
        shuffle=True,
        seed=seed,
        remainder="drop",
    )


if __name__ == "__main__":
    for batch in make_loader(sys.argv[1]):
        print(batch["image"].shape, batch["label"].sum(1))  # timm's SoftTargetCrossEntropy takes both
