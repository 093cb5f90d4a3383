"""The battery over a folder, a tar and zips, every kind of output, with and without the user's Python."""

from __future__ import annotations

import zipfile

import battery
import numpy as np
import pytest
from loader_data import COUNT, write_folder, write_tar, write_zip

import headrace as hr

VIEW = hr.RandomResizedCrop(24, flip=0.5)
JITTER = [hr.ColorJitter(0.4, 0.4, 0.4, 0.1), hr.RandomGrayscale(0.2)]
CROPS = {
    "large": hr.Image(source="image", view=VIEW, copies=2, augment=JITTER),
    "small": hr.Image(source="image", view=hr.RandomResizedCrop(10, scale=(0.05, 0.4)), copies=4, dtype="float16"),
    "second": hr.Image(source="image", view=VIEW, augment=hr.RandomSolarize(128, p=0.5)),
}

ARCHIVES = ("tar", "zip", "stored")


def jitter(sample, rng):
    return sample | {"jitter": rng.random(2)}


def mix(batch, rng):
    return batch | {"mixed": np.asarray(rng.permutation(len(batch["label"])))}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    root = tmp_path_factory.mktemp("battery")
    damaged = write_folder(root / "damaged")
    for number in (3, 17):
        path = next(damaged.glob(f"*/{number:04}.*"))
        path.write_bytes(path.read_bytes()[:200])
    return {
        "folder": hr.open(write_folder(root / "photos")),
        "tar": hr.open(write_tar(root / "photos.tar")),
        "zip": hr.open(write_zip(root / "photos.zip")),
        "stored": hr.open(write_zip(root / "stored.zip", method=zipfile.ZIP_STORED)),
        "damaged": hr.open(damaged),
    }


CASES = {
    "folder, uint8, numpy": {"place": "folder", "output": "numpy"},
    "tar, uint8, numpy": {"place": "tar", "output": "numpy"},
    "tar, bfloat16, torch": {"place": "tar", "output": "torch", "dtype": "bfloat16"},
    "zip, float16, torch": {"place": "zip", "output": "torch", "dtype": "float16"},
    "stored zip, uint8, numpy": {"place": "stored", "output": "numpy"},
    "folder, float32, torch": {"place": "folder", "output": "torch", "dtype": "float32", "normalize": hr.IMAGENET},
    "tar, map": {"place": "tar", "output": "numpy", "map": jitter},
    "folder, unshuffled, drop": {"place": "folder", "output": "numpy", "shuffle": False, "remainder": "drop"},
    "folder, wrap": {"place": "folder", "output": "numpy", "remainder": "wrap"},
    "folder, weights": {"place": "folder", "output": "numpy", "weights": [0, 3, 1, 0.5] * (COUNT // 4)},
    "tar, repeats, wrap": {"place": "tar", "output": "numpy", "repeats": 3, "remainder": "wrap"},
    "bad samples, factors": {"place": "damaged", "output": "numpy", "max_bad": 0.5, "balanced": hr.RepeatFactor(0.6)},
    "bad samples, factors, buckets": {
        "place": "damaged",
        "output": "numpy",
        "max_bad": 0.5,
        "balanced": hr.RepeatFactor(0.6),
        "view": hr.RandomScale((16, 20), long_max=32, flip=0.5),
        "buckets": hr.Buckets("aspect", count=2),
    },
    "bad samples": {"place": "damaged", "output": "numpy", "max_bad": 0.5},
    "bad samples, several crops": {
        "place": "damaged",
        "output": "numpy",
        "max_bad": 0.5,
        "view": None,
        "images": CROPS,
    },
    "bad samples, map, torch": {"place": "damaged", "output": "torch", "max_bad": 0.5, "map": jitter},
}


def factory(places, *, place, output, dtype="uint8", normalize=None, images=None, **options):
    def make(**overrides):
        pictures = images or {"image": hr.Image(dtype=dtype, normalize=normalize)}
        given = {"view": VIEW, "batch_size": battery.GLOBAL_BATCH, "shuffle": True, "seed": 5, "threads": 2} | options
        fields = {**pictures, "label": hr.Label()} | ({"text": hr.Raw()} if place in ARCHIVES else {})
        return hr.Loader(places[place], fields, output=output, **(given | overrides))

    return make


@battery.over(CASES)
@pytest.mark.one_in(4)
def test_battery(places, case, check):
    check(factory(places, **CASES[case]))


def test_batch_map_at_one_world_size(places):
    make = factory(places, place="folder", output="numpy", batch_map=mix)
    battery.check_threads(make)
    battery.check_resume_at_every_step(make)
    battery.check_resume_twice(make)


def test_batches_of_folder_and_archives_are_equal(places):
    folder, *archives = (
        battery.epochs(factory(places, place=place, output="numpy")()) for place in ("folder", *ARCHIVES)
    )
    for name, batches in zip(ARCHIVES, archives, strict=True):
        for batch in batches:
            del batch["text"]
        battery.assert_equal(batches, folder, f"{name} beside folder")


def test_torch_and_numpy_hold_the_same(places):
    both = [battery.epochs(factory(places, place="folder", output=output)()) for output in ("torch", "numpy")]
    battery.assert_equal(both[0], both[1], "torch beside numpy")


def test_epochs_seeds_and_views_differ(places):
    """The battery compares equals; this shows that its subjects are not all the same."""
    make = factory(places, place="folder", output="numpy")
    first, second = np.split(np.concatenate([batch["image"] for batch in battery.epochs(make())]), 2)
    assert not np.array_equal(first, second)
    other = np.concatenate([batch["image"] for batch in battery.kept(make(seed=6))])
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("remainder", "steps", "samples", "left_out", "repeated"),
    [("short", 4, 40, 0, 0), ("drop", 3, 36, 4, 0), ("wrap", 4, 48, 0, 8)],
)
@pytest.mark.parametrize("world_size", battery.WORLD_SIZES)
def test_remainders_count_what_they_leave_out(places, remainder, steps, samples, left_out, repeated, world_size):
    make = factory(places, place="tar", output="numpy", remainder=remainder)
    loaders = battery.loaders_of(make, battery.GLOBAL_BATCH, world_size)
    texts = []
    for loader in loaders:
        assert len(loader) == steps
        texts += [text for batch in loader for text in battery.plain(batch["text"])]
        assert (loader.stats().left_out, loader.stats().repeated) == (left_out, repeated)
    assert len(texts) == samples
    assert len(set(texts)) == min(samples, COUNT), "a sample is lost"


def test_wrapped_samples_get_views_of_their_own(places):
    make = factory(places, place="tar", output="numpy", remainder="wrap", batch_size=30)
    pictures = {}
    for batch in battery.kept(make()):
        for text, image in zip(batch["text"], batch["image"], strict=True):
            pictures.setdefault(text, []).append(image)
    twice = [images for images in pictures.values() if len(images) == 2]
    assert len(twice) == 20
    assert not any(np.array_equal(*images) for images in twice)


def test_a_state_of_another_loader_is_refused(places):
    make = factory(places, place="folder", output="numpy")
    state = battery.state_after(make(), 2)
    for overrides, text in [
        ({"seed": 6}, "pass seed=5"),
        ({"batch_size": 6}, "pass batch_size=12"),
        ({"shuffle": False}, "pass shuffle=True"),
        ({"remainder": "drop"}, "pass remainder='short'"),
        ({"batch_size": 3, "rank": 0, "world_size": 5}, "world sizes that can: 1, 2, 3, 4, 6, 12"),
    ]:
        with pytest.raises(hr.HeadraceError, match=text):
            make(**overrides).load_state_dict(state)


def test_only_the_latest_iterator_moves_the_position(places):
    loader = factory(places, place="folder", output="numpy")()
    old, new = iter(loader), iter(loader)
    next(old), next(old), next(new)
    assert loader.state_dict()["samples"] == battery.GLOBAL_BATCH
    old.close(), new.close()
