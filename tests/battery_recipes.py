"""Recipes for the battery: any source, with any fields, augmentations, plan, workers and cache.

Every sample has an image, a mask, a caption and a vector, so that each source holds what every kind of fields takes.
"""

from __future__ import annotations

import io
import itertools
import json
import random
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import battery
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from loader_data import add_member, encode, photograph
from text_data import caption, tokenizer

import headrace as hr

COUNT = 40
SUFFIXES = {"image": "jpg", "mask": "mask.png", "caption": "txt", "vector": "npy"}
"""Of the members of one sample, by the name of the column in the other sources."""


@dataclass(frozen=True)
class Recipe:
    """One choice on each axis."""

    source: str
    fields: str
    augment: str
    plan: str
    workers: str
    cache: str

    def __str__(self) -> str:
        return ", ".join(getattr(self, axis.name) for axis in fields(self))


@cache
def samples() -> list[dict[str, bytes]]:
    """Each sample's four members."""
    found = []
    for number in range(COUNT):
        width, height = (48 + 5 * (number % 4), 40 + 3 * (number % 3))[:: 1 if number % 3 else -1]
        classes = np.random.default_rng(number).integers(0, 5, (height // 8 + 1, width // 8 + 1)).astype(np.uint8)
        mask = np.kron(classes, np.ones((8, 8), np.uint8))[:height, :width]
        picture = photograph(number, width, height)
        vector = io.BytesIO()
        np.save(vector, np.random.default_rng(number).normal(size=3).astype(np.float32))
        found.append(
            {
                "image": encode(picture, quality=90, progressive=number % 5 == 0),
                "mask": encode(_image(mask), "PNG"),
                "caption": caption(number).encode(),
                "vector": vector.getvalue(),
            }
        )
    return found


def _image(pixels: np.ndarray) -> Any:
    from PIL import Image

    return Image.fromarray(pixels)


def _members() -> Iterator[tuple[str, bytes]]:
    for number, sample in enumerate(samples()):
        for column, data in sample.items():
            yield f"{number:04}.{SUFFIXES[column]}", data


def _tar(root: Path) -> hr.Dataset:
    with tarfile.open(root / "samples.tar", "w") as tar:
        for name, data in _members():
            add_member(tar, name, data)
    return hr.open(root / "samples.tar")


def _zip(root: Path) -> hr.Dataset:
    with zipfile.ZipFile(root / "samples.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in _members():
            archive.writestr(name, data)
    return hr.open(root / "samples.zip")


def _lines_and_folder(root: Path) -> hr.Dataset:
    for name, data in _members():
        (root / name).write_bytes(data)
    rows = [
        {
            "image": f"{number:04}.jpg",
            "mask": f"{number:04}.mask.png",
            "caption": sample["caption"].decode(),
            "vector": f"{number:04}.npy",
        }
        for number, sample in enumerate(samples())
    ]
    (root / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return hr.open(root / "samples.jsonl", root=root)


def _parquet(root: Path) -> hr.Dataset:
    """The samples' bytes in the file's own columns, compressed."""
    columns: dict[str, list[Any]] = {name: [sample[name] for sample in samples()] for name in SUFFIXES}
    columns["caption"] = [data.decode() for data in columns["caption"]]
    pq.write_table(pa.table(columns), root / "samples.parquet", row_group_size=9)
    return hr.open(root / "samples.parquet", cache=root / "cache")


def _memory(_: Path) -> hr.Dataset:
    columns: dict[str, Any] = {name: [sample[name] for sample in samples()] for name in SUFFIXES}
    return hr.open(columns | {"caption": [data.decode() for data in columns["caption"]]})


def _jitter(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return sample | {"jitter": rng.random(2)}


VIEW = [hr.RandomResizedCrop(24, flip=0.5), hr.RandomQuarterTurn()]
SCALES = hr.RandomScale((16, 20), long_max=32, multiple_of=4, flip=0.5)
BY_ASPECT = hr.Buckets("aspect", count=2)

SOURCES: dict[str, Callable[[Path], hr.Dataset]] = {
    "tar": _tar,
    "zip": _zip,
    "jsonl, folder": _lines_and_folder,
    "parquet": _parquet,
    "memory": _memory,
}
BOTH = {"image": "*a[gs]*", "jpg": "*g"}
"""Pattern of the two columns of images, by the name of the first."""
FIELDS: dict[str, Callable[[Callable[[str], str]], dict[str, Any]]] = {
    "images": lambda column: {"image": hr.Image(source=column("image"))},
    "floats and vectors": lambda column: {
        "image": hr.Image(dtype="float32", normalize=hr.IMAGENET, source=column("image")),
        "vector": hr.Array(source=column("vector")),
    },
    "images and masks": lambda column: {
        "image": hr.Image(source=column("image")),
        "mask": hr.Mask(ignore=-1, dtype="int16", source=column("mask")),
    },
    "images and crops": lambda column: {
        "image": hr.Image(source=column("image")),
        "crops": hr.Image(source=column("image"), view=VIEW, copies=3, dtype="float16"),
        "corners": hr.Image(source=column("image"), view=[hr.Resize(20), hr.FiveCrop(16)], channels_last=False),
    },
    "images and clips": lambda column: {
        "image": hr.Image(source=column("image")),
        "clips": hr.Images(hr.Image(dtype="float16"), count=3, frames="segments", source=BOTH[column("image")]),
        "both": hr.Images(hr.Image(view=hr.RandomCrop(8)), count=2, view_per="image", source=BOTH[column("image")]),
    },
    "pairs": lambda column: {
        "large": hr.Image(source=column("image"), scale=2, filter="bicubic"),
        "small": hr.Image(source=column("image")),
    },
    "images and captions": lambda column: {
        "image": hr.Image(source=column("image")),
        "caption": hr.Text(tokenizer(), max_length=10, pad="max", source=column("caption")),
    },
}
AUGMENTS: dict[str, tuple[list[Any], list[Any]]] = {
    "as cut": ([], []),
    "colours": (
        [hr.ColorJitter(0.4, 0.4, 0.4, 0.1), hr.RandomApply([hr.GaussianBlur(5)]), hr.RandomErasing(0.5)],
        [hr.RandomChoice([hr.RandomSolarize(128), hr.RandomPhotometricDistort()]), hr.RandomGrayscale(0.2)],
    ),
    "geometry": (
        [hr.RandomAffine(20, translate=(0.1, 0.1), shear=8), hr.RandomPerspective(0.3), hr.ElasticTransform(20, 3)],
        [hr.RandomRotation(15)],
    ),
    "RandAugment": ([hr.RandAugment()], [hr.RandomErasing(0.25)]),
    "TrivialAugmentWide": ([hr.TrivialAugmentWide()], []),
    "AutoAugment": ([hr.AutoAugment()], []),
    "AugMix": ([], [hr.AugMix()]),
    "timm": ([], ["rand-m9-mstd0.5-inc1", hr.RandomErasing(0.25)]),
}
"""What is done to the sample, and then to each picture."""

PLANS: dict[str, dict[str, Any]] = {
    "shuffled": {},
    "wrap": {"remainder": "wrap"},
    "windowed": {"order": hr.Windowed(block_samples=3, window_blocks=4)},
    "buckets": {"view": SCALES, "buckets": BY_ASPECT},
    "budget": {"view": SCALES, "buckets": BY_ASPECT, "remainder": "wrap", "pixels": 6000},
    "one-source mixture": {"batches": "one-source", "remainder": "wrap"},
    "mixed batches": {"batches": "mixed", "remainder": "wrap"},
}
WORKERS: dict[str, dict[str, Any]] = {
    "threads": {},
    "map": {"map": _jitter},
    "map workers": {"map": _jitter, "map_workers": 2},
}
CACHES = ("no cache", "ram", "disk")


def _augmented(field: Any, augment: list[Any]) -> Any:
    if isinstance(field, hr.Images):
        return replace(field, image=replace(field.image, augment=augment))
    return replace(field, augment=augment) if isinstance(field, hr.Image) else field


def make_of(recipe: Recipe, dataset: hr.Dataset, folder: Path) -> battery.Make:
    """Return the factory of a recipe's loaders. `folder`: where its disk cache lies."""
    archive = recipe.source in ("tar", "zip")
    of_sample, of_field = AUGMENTS[recipe.augment]
    if recipe.fields == "pairs":  # whose places are of two scales
        of_sample, of_field = [], sorted([*of_field, *of_sample], key=lambda each: isinstance(each, hr.RandomErasing))
    taken = {
        name: _augmented(field, of_field) if of_field else field
        for name, field in FIELDS[recipe.fields](lambda column: SUFFIXES[column] if archive else column).items()
    }
    options = {"augment": of_sample} | WORKERS[recipe.workers] | PLANS[recipe.plan]
    pixels, batches = options.pop("pixels", None), options.pop("batches", None)
    if recipe.cache != "no cache":
        options["cache"] = {"ram": "ram:41MB", "disk": f"disk:{folder}:40MB"}[recipe.cache]

    def make(**overrides: Any) -> battery.Resumable:
        given = {"view": VIEW, "shuffle": True, "seed": 5, "threads": 2, "output": "torch"} | options
        given |= {"batch_size": battery.GLOBAL_BATCH} | overrides
        if pixels is not None:  # the battery's batch sizes tell the world size only
            given["batch_size"] = hr.Budget(pixels=pixels // given.get("world_size", 1), rank_multiple=4)
        if batches is None:
            return hr.Loader(dataset, taken, **given)
        parts = {"first": dataset.select(range(26)), "rest": dataset.select(range(26, COUNT))}
        loaders = {name: hr.Loader(part, taken, **given) for name, part in parts.items()}
        return hr.mix(loaders, weights={"first": 2, "rest": 1}, batches=batches, seed=7)

    return make


MOST_TRIED = 1500
"""Recipes that `every_pair` looks at: each pair is in some thirty of them."""


def every_pair(seed: int) -> list[Recipe]:
    """Return recipes in which any two choices of different axes meet at least once, in a drawn order."""
    axes = [list(axis) for axis in (SOURCES, FIELDS, AUGMENTS, PLANS, WORKERS, CACHES)]
    draw = random.Random(seed)
    every = draw.sample(list(itertools.product(*axes)), MOST_TRIED)
    pairs = {choices: set(itertools.combinations(enumerate(choices), 2)) for choices in every}
    missing = set().union(*pairs.values())
    found = []
    while missing:
        best = max(every, key=lambda choices: len(missing & pairs[choices]))
        missing -= pairs[best]
        found.append(Recipe(*best))
    return found
