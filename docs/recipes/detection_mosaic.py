"""A detector on COCO: resize, crop, flip and colour in the core; Mosaic, which joins four samples, in Python.

    python detection_mosaic.py train2017 annotations/instances_train2017.json

Mosaic gets batches of images that are decoded and resized, so that it only moves memory.
"""

import sys

import torch

import headrace as hr


def make_loader(path, annotations=None, batch_size=16, seed=0, *, size=640):
    data = hr.open(annotations or f"{path}/annotations.json", root=path)
    fields = {
        "image": hr.Image(),
        "boxes": hr.Boxes(source="bbox", format="xywh", min_size=2, beside=("label",)),
    }
    return hr.Loader(
        data,
        fields,
        view=[hr.Resize(size), hr.RandomCrop(size, flip=0.5)],
        augment=[hr.ColorJitter(brightness=0.4, saturation=0.7, hue=0.015)],
        batch_map=mosaic,
        batch_size=batch_size,
        shuffle=True,
        seed=seed,
        remainder="drop",
    )


def mosaic(batch, rng):
    """Join each sample with three others of its batch around a point drawn for each; boxes move and are clipped."""
    images = batch["image"]
    count, _, height, width = images.shape
    joined = torch.empty_like(images)
    boxes, labels = ([[] for _ in range(count)] for _ in range(2))
    for row in range(count):
        x, y = (int(rng.integers(side // 4, side - side // 4)) for side in (width, height))
        for tile, other in enumerate([row, *rng.integers(count, size=3).tolist()]):
            dx, dy = x if tile % 2 else x - width, y if tile // 2 else y - height
            left, top, right, bottom = max(dx, 0), max(dy, 0), min(dx + width, width), min(dy + height, height)
            joined[row, :, top:bottom, left:right] = images[other, :, top - dy : bottom - dy, left - dx : right - dx]
            moved = batch["boxes"][other] + torch.tensor([dx, dy, dx, dy])
            moved = moved.clamp(torch.tensor([left, top] * 2), torch.tensor([right, bottom] * 2))
            kept = (moved[:, 2:] - moved[:, :2] > 2).all(1)
            boxes[row].append(moved[kept])
            labels[row].append(batch["boxes_label"][other][kept])
    return {"image": joined, "boxes": [*map(torch.cat, boxes)], "boxes_label": [*map(torch.cat, labels)]}


if __name__ == "__main__":
    for batch in make_loader(*sys.argv[1:3]):
        print(batch["image"].shape, [len(boxes) for boxes in batch["boxes"]])
