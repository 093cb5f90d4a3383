"""MAE pre-training: a random crop and a flip are all of it; the mask is drawn in the model.

python mae.py imagenet/train
"""

import sys

import headrace as hr


def make_loader(path, batch_size=64, seed=0, *, size=224, device=None):
    return hr.Loader(
        path,
        {"image": hr.Image(dtype="float32", normalize=hr.IMAGENET)},
        view=hr.RandomResizedCrop(size, scale=(0.2, 1.0), flip=0.5),
        batch_size=batch_size,
        shuffle=True,
        seed=seed,
        remainder="drop",
        device=device,
    )


if __name__ == "__main__":
    loader = make_loader(sys.argv[1], device="cuda")
    for epoch in range(loader.epoch, 400):
        loader.set_epoch(epoch)
        for batch in loader:
            print(batch["image"].shape)  # loss, _, _ = model(batch["image"], mask_ratio=0.75)
