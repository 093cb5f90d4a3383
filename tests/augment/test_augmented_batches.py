"""Batches hold what the drawn operations make of the cut pixels, whatever is cached and whatever else fails."""

from __future__ import annotations

import hashlib

import battery
import numpy as np
import pytest
from loader_data import encode, photograph
from twin import augment_pixels as pixels
from twin.rng import hash64

import headrace as hr
from headrace import _core
from headrace.augment import compile_augment
from headrace.errors import UsageError

COUNT, SEED = 10, 5
OF_SAMPLE = [
    hr.ColorJitter(0.4, 0.4, 0.4, 0.1),
    hr.RandomAffine(15, translate=(0.1, 0.1)),
    hr.RandomApply([hr.GaussianBlur(5)]),
]
OF_FIELD = [hr.RandAugment(), hr.AugMix(), hr.RandomErasing(0.5, value=7)]


@pytest.fixture(scope="module")
def dataset():
    files = [encode(photograph(number, 50 + 4 * (number % 3), 44), quality=90) for number in range(COUNT)]
    return hr.open({"image": files})


def name_hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def expected(cut: np.ndarray, sample: int, epoch: int) -> np.ndarray:
    """The field "image" of a sample, by the keys that the documentation states."""
    key = hash64(SEED, epoch)
    chain = []
    for augment, its_key in ((OF_SAMPLE, key), (OF_FIELD, hash64(hash64(key, name_hash("image")), 0))):
        program = compile_augment("augment", augment)
        assert program is not None
        height, width = cut.shape[:2]
        chain += _core.draw_chain(program.native, its_key, sample, 0, width=width, height=height)
    return _core.apply_chain(cut, chain)


def batches(dataset: hr.Dataset, *, augmented: bool, shrink_to: int | None = None, **options) -> list[np.ndarray]:
    """Both epochs, all samples in the dataset's order, [samples, height, width, channels]."""
    image = hr.Image(augment=OF_FIELD if augmented else None, shrink_to=shrink_to)
    given = {"batch_size": COUNT, "shuffle": False, "seed": SEED, "threads": 2, "output": "numpy"} | options
    loader = hr.Loader(dataset, {"image": image}, augment=OF_SAMPLE if augmented else None, **given)
    return [np.ascontiguousarray(np.moveaxis(batch["image"], 1, -1)) for batch in battery.epochs(loader)]


VIEWS = {
    "random": hr.RandomResizedCrop(20, flip=0.5),
    "fixed": [hr.Resize((20, 24))],
    "fixed but for a flip": [hr.Resize((20, 24), flip=0.5)],
    "padded": [hr.Letterbox((20, 30))],
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("cache", [None, "ram", "disk"])
@pytest.mark.parametrize("view", VIEWS)
def test_what_is_cached_is_before_the_draw(dataset, tmp_path, view, cache):
    """Bytes, or the pixels of a fixed view: in the second epoch, too, these are drawn for anew."""
    cut = batches(dataset, augmented=False, view=VIEWS[view])
    where = {None: None, "ram": "ram:41MB", "disk": f"disk:{tmp_path}:40MB"}[cache]
    got = batches(dataset, augmented=True, view=VIEWS[view], cache=where)
    for epoch in range(battery.EPOCHS):
        for sample in range(COUNT):
            np.testing.assert_array_equal(got[epoch][sample], expected(cut[epoch][sample], sample, epoch))
    assert not np.array_equal(got[0], got[1])


@pytest.mark.parametrize("cache", [None, "ram:41MB"])
@pytest.mark.parametrize("shrink_to", [None, 18])
def test_a_bad_file_leaves_the_augmentation_of_others_alone(dataset, cache, shrink_to):
    """It fails while pixels are made that come before the draw; one thread works on all samples."""
    files = [dataset[number]["image"] for number in range(COUNT)]
    files[3] = files[3][: len(files[3]) // 2]
    options = {"view": VIEWS["fixed"] if shrink_to is None else VIEWS["random"], "max_bad": 0.5, "threads": 1}
    options |= {"cache": cache}
    damaged = hr.open({"image": files})
    cut = batches(damaged, augmented=False, shrink_to=shrink_to, **options)
    got = batches(damaged, augmented=True, shrink_to=shrink_to, **options)
    for epoch in range(battery.EPOCHS):
        for sample in set(range(COUNT)) - {3}:
            np.testing.assert_array_equal(got[epoch][sample], expected(cut[epoch][sample], sample, epoch))


def test_floats_are_of_the_augmented_bytes(dataset):
    def load(image: hr.Image) -> np.ndarray:
        options = {"augment": OF_SAMPLE, "batch_size": COUNT, "shuffle": False, "seed": SEED, "output": "numpy"}
        (batch,) = battery.kept(hr.Loader(dataset, {"image": image}, view=VIEWS["fixed"], **options))
        return batch["image"]

    mean, deviation = (255 * np.array(each)[:, None, None] for each in (hr.IMAGENET.mean, hr.IMAGENET.std))
    made = (load(hr.Image()) - mean) / deviation
    np.testing.assert_allclose(load(hr.Image(dtype="float32", normalize=hr.IMAGENET)), made, atol=2e-6)


ERASE = hr.RandomErasing()


@pytest.mark.parametrize(
    "augment",
    [
        [ERASE, hr.RandomInvert()],
        [hr.RandomApply([ERASE, hr.RandomInvert()])],
        hr.RandomOrder([hr.RandomInvert(), ERASE]),
        [ERASE, hr.RandomApply([ERASE, hr.RandomInvert()])],
        hr.RandomOrder([ERASE, hr.RandomChoice([ERASE, hr.RandomInvert()])]),
    ],
)
def test_nothing_follows_an_erasure(augment):
    """It is of the batch's own values, so it is written when all that is done to bytes is done."""
    with pytest.raises(UsageError, match="expected nothing but RandomErasing after RandomErasing"):
        compile_augment("augment", augment)


def test_an_erasure_may_be_one_of_several_ends():
    for augment in (
        hr.RandomChoice([hr.RandomInvert(), ERASE, hr.RandomApply([hr.RandomInvert(), ERASE])]),
        [hr.RandomInvert(), hr.RandomApply([ERASE])],
        hr.RandomOrder([ERASE, ERASE]),
        [hr.RandomApply([hr.RandomInvert(), ERASE]), ERASE, hr.RandomChoice([ERASE, hr.RandomErasing(count=3)])],
    ):
        assert compile_augment("augment", augment) is not None


def test_augmix_blends_its_branches():
    """torchvision truncates the blend; a level more is float32's."""
    rng = np.random.default_rng(3)
    image = rng.integers(0, 256, (9, 14, 3), np.uint8)
    invert, bright = (15, []), (10, [1.6])
    chain = [(90, []), (91, [0.3]), invert, (91, [0.5]), bright, invert, (91, [0.2]), (92, [0.7])]
    branches = 0.3 * pixels.invert(image) + 0.5 * pixels.invert(pixels.brightness(image, 1.6)) + 0.2 * image
    for level in _core.levels():
        got = _core.apply_chain(image, chain, level=level)
        assert np.abs(got - (0.3 * image + 0.7 * branches)).max() <= 1 + 1e-3


def test_solarize_add_is_timms():
    image = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    for added in (0, 37, 110):
        got = _core.apply_chain(image, [(24, [added, 128])])
        np.testing.assert_array_equal(got, pixels.solarize_add(image, added, 128))


@pytest.mark.parametrize(("mode", "channels_last"), [("RGB", True), ("RGB", False), ("L", False)])
def test_erased_rectangles(dataset, mode, channels_last):
    """They hold the batch's own values: bytes cut to 0…255, floats as they are, noise of each channel its own."""

    def batch(dtype: str, value: object = None) -> np.ndarray:
        erasing = None if value is None else hr.RandomErasing(1.0, value=value)
        image = hr.Image(dtype=dtype, mode=mode, augment=erasing, channels_last=channels_last)
        given = {"view": [hr.Resize((20, 24))], "shuffle": False, "threads": 2, "output": "numpy"}
        return next(iter(hr.Loader(dataset, {"image": image}, batch_size=COUNT, seed=SEED, **given)))["image"]

    plain, filled = batch("float32"), batch("float32", -3.5)
    inside = filled == -3.5
    np.testing.assert_array_equal(filled, np.where(inside, np.float32(-3.5), plain))
    for image in inside:
        rows, columns = np.flatnonzero(image[0].any(1)), np.flatnonzero(image[0].any(0))
        assert image[:, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all()
        assert (image == image[0]).all()
    np.testing.assert_array_equal(batch("uint8", 300), np.where(inside, 255, batch("uint8")))
    noise = batch("float32", "random")
    np.testing.assert_array_equal(noise[~inside], plain[~inside])
    assert len(np.unique(noise[inside])) > 0.99 * inside.sum()
    assert abs(noise[inside].mean()) < 0.2
    assert 0.9 < noise[inside].std() < 1.1
    np.testing.assert_array_equal(batch("float16", "random")[inside], noise[inside].astype(np.float16))
    colours = batch("float32", "random_color")
    np.testing.assert_array_equal(colours[~inside], plain[~inside])
    each = [
        [np.unique(channel[held]).tolist() for channel, held in zip(*pair, strict=True)]
        for pair in zip(colours, inside, strict=True)
    ]
    assert all(len(channel) == 1 for image in each for channel in image)
    assert len({channel[0] for image in each for channel in image}) == inside.shape[0] * inside[0, :, 0, 0].size
