"""torchvision's reference classification: TrivialAugment, RandomErasing, MixUp or CutMix, repeated augmentation.

    python torchvision_classification.py imagenet/train

The settings are those of ResNet-50's second weights. The rest of the script stays: label smoothing in the loss,
warm-up, EMA (it averages weights, not data), and the distributed launch, whose rank the loader finds by itself.
"""

import sys

import headrace as hr

POLICIES = {
    "ta_wide": [hr.TrivialAugmentWide()],
    "ra": [hr.RandAugment(2, 9)],
    "augmix": [hr.AugMix()],
    "imagenet": [hr.AutoAugment("imagenet")],
}
MIX = hr.RandomChoice([hr.MixUp(alpha=0.2), hr.CutMix(alpha=1.0)])


def make_loader(path, batch_size=128, seed=0, *, auto_augment="ta_wide", random_erase=0.1, repeats=4, device=None):
    image = hr.Image(
        dtype="float32",
        normalize=hr.IMAGENET,
        augment=[*POLICIES[auto_augment], hr.RandomErasing(random_erase)],
    )
    return hr.Loader(
        path,
        {"image": image, "label": hr.Label()},
        view=hr.RandomResizedCrop(176, flip=0.5),
        batch_size=batch_size,
        batch=MIX,
        repeats=repeats,
        shuffle=True,
        seed=seed,
        remainder="drop",
        device=device,
    )


if __name__ == "__main__":
    for batch in make_loader(sys.argv[1], device="cuda"):
        print(batch["image"].shape, batch["label"].shape)  # float32 [128, 3, 176, 176] and soft labels [128, classes]
        # loss = cross_entropy(model(batch["image"]), batch["label"], label_smoothing=0.1)
