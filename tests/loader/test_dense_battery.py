"""The battery over dense fields in one tar: with damaged members, in map workers, and as tensors."""

from __future__ import annotations

import tarfile

import battery
import numpy as np
import pytest
from dense_data import COUNT, write_tar

import headrace as hr

VIEW = [hr.RandomResizedCrop(24, flip=0.5), hr.RandomQuarterTurn()]
MOVES = [
    hr.RandomAffine(30, shear=20),
    hr.ColorJitter(0.4),
    hr.RandomPerspective(p=0.7),
    hr.ElasticTransform(sigma=2.0),
]

FIELDS = {
    "rgb": hr.Image(filter="nearest"),
    "depth": hr.Depth(1 / 1000, normalize=hr.Quantiles()),
    "mask": hr.Mask(ignore=-1, remap={255: -1}, dtype="int16"),
    "normals": hr.Normals(dtype="float16"),
}


def jitter(sample, rng):
    return sample | {"depth": sample["depth"] + np.float32(rng.random())}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    root = tmp_path_factory.mktemp("dense")
    return {"whole": write_tar(root / "whole"), "damaged": damage(root / "damaged")}


def damage(root) -> hr.Dataset:
    """The middle of two depth maps and one mask is overwritten."""
    dataset = write_tar(root)
    with tarfile.open(root / "scenes.tar") as tar:
        names = [f"./ai_{number:03}/{column}.png" for number, column in ((3, "depth"), (8, "mask"), (17, "depth"))]
        places = [tar.getmember(name).offset_data for name in names]
    with open(root / "scenes.tar", "r+b") as file:
        for place in places:
            file.seek(place + 60)
            file.write(bytes(400))
    return dataset


CASES = {
    "numpy": {"output": "numpy"},
    "torch": {"output": "torch", "augment": MOVES},
    "one shape a step": {
        "output": "numpy",
        "view": hr.RandomScale((16, 24), multiple_of=4, flip=0.5),
        "buckets": hr.Buckets("aspect", count=2),
    },
    "bad samples": {"place": "damaged", "output": "numpy", "max_bad": 0.5},
    "bad samples, map": {"place": "damaged", "output": "numpy", "max_bad": 0.5, "map": jitter},
}


def factory(places, *, place="whole", **options):
    def make(**overrides):
        given = {"view": VIEW, "batch_size": battery.GLOBAL_BATCH, "shuffle": True, "seed": 5, "threads": 2}
        return hr.Loader(places[place], FIELDS, **(given | options | overrides))

    return make


@battery.over(CASES)
@pytest.mark.one_in(3)
def test_battery(places, case, check):
    check(factory(places, **CASES[case]))


def test_processes_get_the_same(places):
    """Masks and validity lie in memory that workers share, as images do."""
    expected = battery.kept(factory(places, output="numpy", map=jitter)())
    made = factory(places, output="numpy", map=jitter, map_workers=1, multiprocessing_context="fork")
    battery.assert_equal(battery.kept(made()), expected, "map_workers=1")


def test_bad_samples_are_named_and_replaced_as_a_whole(places, tmp_path):
    """No field of a sample stays where another is bad."""
    quarantine = tmp_path / "bad.jsonl"
    options = {"view": hr.Resize((30, 40)), "batch_size": COUNT, "output": "numpy", "max_bad": 0.5}
    damaged, whole = (
        hr.Loader(places[place], FIELDS | {"key": hr.Raw(source="__key__")}, quarantine=path, **options)
        for place, path in (("damaged", quarantine), ("whole", None))
    )
    (got,), (expected,) = damaged, whole
    bad = [number for number in range(COUNT) if got["key"][number] != expected["key"][number]]
    assert bad == [3, 8, 17]
    text = quarantine.read_text()
    assert [line.count('"depth"') + line.count('"mask"') for line in text.splitlines()] == [1, 1, 1]
    for number in range(COUNT):
        stands_in = expected["key"].index(got["key"][number])
        for name in ("rgb", "depth", "depth_valid", "mask", "normals"):
            np.testing.assert_array_equal(got[name][number], expected[name][stands_in])
