"""The battery over `Loader(batch=)`: threads, world sizes, instruction sets and resumes agree bit for bit."""

from __future__ import annotations

import battery
import pytest
from loader_data import write_folder

import headrace as hr

VIEW = hr.RandomResizedCrop(24, flip=0.5)
SCALES = {
    "view": hr.RandomScale((16, 20), long_max=32, multiple_of=4, flip=0.5),
    "buckets": hr.Buckets("aspect", count=2),
}
GLOBAL_BATCH = 16
"""An even number for each of four ranks, and a short last batch of 40 samples."""

FLOATS = {"image": hr.Image(dtype="float32", normalize=hr.IMAGENET), "label": hr.Label()}
BYTES = FLOATS | {"image": hr.Image()}


def jitter(sample, rng):
    return sample | {"jitter": rng.random(2)}


PAIRS = hr.RandomChoice([hr.MixUp(alpha=0.3, mode="pair"), hr.CutMix(mode="pair")])
CASES = {
    "mixup": (BYTES, {"batch": hr.MixUp(alpha=0.8)}),
    "floats by pairs": (FLOATS, {"batch": PAIRS}),
    "wrap, map": (BYTES, {"batch": hr.CutMix(), "map": jitter, "remainder": "wrap"}),
    "wrap, map workers": (FLOATS, {"batch": PAIRS, "map": jitter, "map_workers": 2, "remainder": "wrap"}),
    "buckets": (FLOATS, {"batch": hr.CutMix()} | SCALES),
    "budget": (BYTES, {"batch": PAIRS, "pixels": 12000, "remainder": "wrap"} | SCALES),
    "mixture": (BYTES, {"batch": PAIRS, "remainder": "wrap", "mix": True}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return hr.open(write_folder(tmp_path_factory.mktemp("mixing") / "photos"))


@battery.over(CASES, one_in=7)
@pytest.mark.one_in(3)
def test_battery(folder, case, check):
    fields, options = CASES[case]
    options = dict(options)
    pixels, joined = options.pop("pixels", None), options.pop("mix", False)

    def make(**overrides):
        given = {"view": VIEW, "shuffle": True, "seed": 5, "threads": 2, "batch_size": GLOBAL_BATCH}
        given |= options | overrides
        if pixels is not None:  # the battery's batch sizes tell the world size only
            given["batch_size"] = hr.Budget(pixels=pixels // given.get("world_size", 1), rank_multiple=8)
        if not joined:
            return hr.Loader(folder, fields, **given)
        parts = {"first": folder.select(range(26)), "rest": folder.select(range(26, 40))}
        loaders = {name: hr.Loader(part, fields, **given) for name, part in parts.items()}
        return hr.mix(loaders, weights={"first": 2, "rest": 1}, batches="one-source", seed=7)

    make.global_batch = GLOBAL_BATCH
    check(make)
