"""The examples of docs/transforms.md, run as they stand there, in one script from top to bottom."""

from __future__ import annotations

import importlib.util
import random
import re

import battery
import numpy as np
import pytest
from docs_pages import examples
from loader_data import CLASSES, encode, photograph

PER_CLASS = 17
EXAMPLES = examples("transforms.md")


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """With the folder of which the examples speak."""
    root = tmp_path_factory.mktemp("transforms")
    for number in range(PER_CLASS * len(CLASSES)):
        path = root / "train" / CLASSES[number // PER_CLASS] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(photograph(number, 280, 260), quality=90))
    return root


def needs(example):
    """Libraries that it imports and that are not installed here."""
    names = re.findall(r"^(?:import|from) (\w+)", example, re.MULTILINE)
    return [name for name in names if importlib.util.find_spec(name) is None]


@pytest.fixture
def scope(directory, monkeypatch):
    """Runs the examples before `last`, and it; those that lack a library are left out."""
    monkeypatch.chdir(directory)
    monkeypatch.setattr("multiprocessing.set_forkserver_preload", lambda names: None)

    def run(last):
        if missing := needs(last):
            pytest.skip(f"not installed: {', '.join(missing)}")
        names = {}
        for example in EXAMPLES[: EXAMPLES.index(last) + 1]:
            if not needs(example):
                exec(example, names)
        return names

    return run


def example_of(text):
    (found,) = [example for example in EXAMPLES if text in example]
    return found


def repeats(loader):
    """The first epoch's batches, which another pass over it gives again, bit for bit."""
    batches = battery.kept(loader)
    loader.set_epoch(0)
    battery.assert_equal(battery.kept(loader), batches, "the same epoch again")
    return batches


def test_every_example_is_python():
    assert len(EXAMPLES) == 6
    for example in EXAMPLES:
        compile(example, "transforms.md", "exec")


@pytest.mark.long
def test_the_two_functions(scope):
    batch = repeats_numbers(scope(example_of("def blend_pairs"))["loader"])
    assert batch["image"].shape == (64, 3, 224, 224)
    assert batch["image"].dtype == np.float32
    assert set(np.unique(batch["label"])) == {0, 1, 2, 3}


def repeats_numbers(loader):
    """As `repeats`, for batches with numbers that are no fields."""
    batches = [dict(batch) for batch in loader]
    loader.set_epoch(0)
    for first, second in zip(batches, loader, strict=True):
        assert list(first) == list(second)
        assert all(np.array_equal(first[name], second[name]) for name in first)
    return batches[0]


@pytest.mark.long
def test_map_workers(scope):
    (first, *_) = repeats(scope(example_of("map_workers=4"))["loader"])
    assert first["image"].shape == (64, 3, 256, 256)


@pytest.mark.long
def test_albumentations(scope):
    names = scope(example_of("albumentations.Compose"))
    (first, *_) = repeats(names["loader"])
    assert first["image"].shape == (64, 3, 224, 224)
    assert first["image"].dtype == np.float32


def test_what_is_said_of_albumentations_two_ways_to_seed():
    """One seed for all transforms: two that happen with a chance of one half happen together, or not at all."""
    albumentations = pytest.importorskip("albumentations")
    transform = albumentations.Compose([albumentations.HorizontalFlip(p=0.5), albumentations.InvertImg(p=0.5)])
    image = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)

    def happened(made):
        inverted = made.max() > 200
        plain = 255 - made if inverted else made
        return inverted, not np.array_equal(plain, image)

    by_seed, by_state = set(), set()
    for seed in range(40):
        transform.set_random_seed(seed)
        by_seed.add(happened(transform(image=image)["image"]))
        rng = np.random.default_rng(seed)
        transform.set_random_state(rng, random.Random(int(rng.integers(1 << 63))))
        by_state.add(happened(transform(image=image)["image"]))
    assert by_seed == {(True, True), (False, False)}
    assert len(by_state) == 4


def test_torchvision(scope):
    names = scope(example_of("torchvision"))
    (first, *_) = repeats(names["loader"])
    assert first["image"].shape == (64, 3, 224, 224)
    assert first["image"].dtype == np.float32


@pytest.mark.long
def test_plain_functions(scope):
    names = scope(example_of("def histogram"))
    (first, *_) = repeats(names["histograms"])
    assert first["histogram"].shape == (64, 32)
    assert (first["histogram"].sum(1) == 3 * 256 * 256).all()
    (sentences, *_) = repeats(names["sentences"])
    assert sentences["words"][0] == ["a", "photograph", "of", "class", "0"]
    assert len({len(words) for words in sentences["words"]}) == 1
