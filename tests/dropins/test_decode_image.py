"""What `decode_image` gives: against Pillow, which shares no code with it, and against the Loader, bit for bit."""

from __future__ import annotations

import io
import mmap
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from bad_loads import animated, cmyk_jpeg
from loader_data import add_member, encode, encoded, photograph
from PIL import Image, ImageOps

import headrace as hr
from headrace import _core
from headrace.dropins.image_reader import ImageReader, decode_image
from headrace.views import compile_view

SEED = 5
CROP = hr.RandomResizedCrop((24, 30), flip=0.5)

VIEW_COLUMNS = [column.name.lower() for column in _core.ViewColumn]


def turned_jpeg():
    exif = Image.Exif()
    exif[0x0112] = 6
    return encode(photograph(5, 60, 44), exif=exif, quality=95)


IMAGES = {f"kind {number}": encoded(number)[1] for number in range(8)} | {
    "CMYK": cmyk_jpeg(),
    "GIF": animated("GIF"),
    "WebP": encode(photograph(4, 50, 40), "WEBP", lossless=True),
    "TIFF": encode(photograph(4, 50, 40), "TIFF"),
    "turned": turned_jpeg(),
}


@pytest.fixture(params=IMAGES.values(), ids=IMAGES)
def data(request):
    return request.param


def by_loader(root: Path, data: bytes, view, *, output="numpy", seed=SEED, epoch=0, **options):
    """[C, H, W] of the one sample of a folder that holds nothing else."""
    root.mkdir(exist_ok=True)
    (root / "a.jpg").write_bytes(data)
    fields = {"image": hr.Image(**options)}
    loader = hr.Loader(root, fields, view=view, batch_size=1, seed=seed, output=output, threads=1, on_error="raise")
    loader.set_epoch(epoch)
    (batch,) = loader
    return batch["image"][0]


def drawn_view(view, size, seed=SEED):
    """The view that an int `rng` stands for, as the documentation has it: sample 0, epoch 0 of that seed."""
    side = [np.array([pixels], np.int32) for pixels in size]
    first = np.zeros(1, np.int64), np.zeros(1, np.uint32)
    row = _core.sample_views(compile_view(view).ops, _core.hash64(seed, 0), *first, 0, *side)[0]
    return dict(zip(VIEW_COLUMNS, row, strict=True))


# --- pixels ---


@pytest.mark.parametrize("seed", range(3))
def test_equals_pillow_to_one_level(data, seed):
    picture = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    view = drawn_view(CROP, picture.size, seed)
    box = tuple(int(view[name]) for name in ("left", "top", "right", "bottom"))
    expected = np.asarray(picture.crop(box).resize((30, 24), Image.Resampling.BILINEAR))
    expected = expected[:, ::-1] if view["hflip"] else expected
    got = decode_image(data, view=CROP, dct_scaling=False, rng=seed, output="numpy")
    assert got.shape == (24, 30, 3)
    assert np.abs(got.astype(int) - expected).max() <= 1


VIEWS = {
    "none": None,
    "crop": CROP,
    "short side": [hr.Resize(20), hr.CenterCrop(16)],
    "size from the image": hr.Resize(20),
    "padding": hr.RandomCrop(64, padding=4, pad_if_needed=True, fill=(1, 2, 3), flip=1.0),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_equals_the_loader(tmp_path, data, view):
    got = decode_image(data, view=view, rng=SEED, output="numpy", channels_last=False)
    np.testing.assert_array_equal(got, by_loader(tmp_path / "photos", data, view))


OPTIONS = {
    "float32": {"dtype": "float32"},
    "float16": {"dtype": "float16", "normalize": hr.IMAGENET},
    "bfloat16": {"dtype": "bfloat16", "normalize": hr.IMAGENET},
    "grey": {"mode": "L"},
    "nearest": {"filter": "nearest"},
    "unscaled": {"dct_scaling": False},
    "stored": {"exif": False},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_options_mean_what_they_mean_to_the_loader(tmp_path, options):
    for name in ("kind 0", "kind 4", "WebP", "turned"):
        got = decode_image(IMAGES[name], view=CROP, rng=SEED, **options)
        expected = by_loader(tmp_path / "photos", IMAGES[name], CROP, output="torch", **options)
        assert got.dtype == expected.dtype
        assert torch.equal(got, expected), name


# --- layout ---


def test_torch_images_are_planar_unless_asked():
    planar, last = (decode_image(IMAGES["kind 0"], view=CROP, rng=1, channels_last=last) for last in (None, True))
    assert planar.shape == last.shape == (3, 24, 30)
    assert planar.is_contiguous()
    assert last.permute(1, 2, 0).is_contiguous()
    assert torch.equal(planar, last)


@pytest.mark.parametrize("channels_last", [False, True])
def test_collate_makes_the_batch_that_read_images_makes(channels_last):
    images = [decode_image(data, view=CROP, rng=1, channels_last=channels_last) for data in IMAGES.values()]
    batch = torch.utils.data.default_collate(images)
    assert batch.is_contiguous()
    for got, image in zip(batch, images, strict=True):
        assert torch.equal(got, image)


def test_numpy_images_are_as_pillow_has_them():
    data = IMAGES["kind 5"]
    picture = Image.open(io.BytesIO(data))
    got = decode_image(data, output="numpy")
    assert got.flags.c_contiguous
    assert got.flags.writeable
    np.testing.assert_array_equal(got, np.asarray(picture))
    np.testing.assert_array_equal(decode_image(data, output="numpy", channels_last=False), got.transpose(2, 0, 1))
    assert decode_image(data, output="numpy", mode="L").shape == (*got.shape[:2], 1)


def test_memory_belongs_to_the_image():
    """Neither the next decode nor the end of the reader touches it."""
    reader = ImageReader(view=CROP)
    first = reader(IMAGES["kind 0"], rng=1)
    kept = first.clone()
    for seed in range(20):
        reader(IMAGES["kind 1"], rng=seed)
    del reader
    assert torch.equal(first, kept)


# --- sources ---


class Unseekable:
    def __init__(self, data: bytes, most: int) -> None:
        self._file, self._most = io.BytesIO(data), most

    def read(self, size: int, /) -> bytes:
        return self._file.read(min(size, self._most))


@pytest.mark.parametrize("kind", ["kind 0", "kind 5", "WebP"])
def test_every_kind_of_source_gives_the_same(tmp_path, kind):
    data = IMAGES[kind]
    path = tmp_path / "bild ü.jpg"
    path.write_bytes(data)
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        add_member(tar, "x.jpg", data)
    moved = io.BytesIO(data)
    moved.seek(17)
    spread = bytearray(2 * len(data))
    spread[::2] = data
    expected = decode_image(data, output="numpy")
    with (
        path.open("rb") as file,
        path.open("rb", buffering=0) as raw,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        tarfile.open(tmp_path / "a.tar") as tar,
    ):
        sources = [str(path), path, bytearray(data), memoryview(data), memoryview(spread)[::2], moved, file, raw]
        sources += [mapped, tar.extractfile("x.jpg"), Unseekable(data, 1000), np.fromfile(path, np.uint8)]
        for source in sources:
            np.testing.assert_array_equal(decode_image(source, output="numpy"), expected, err_msg=repr(source))
        assert not file.closed


def test_a_buffer_is_let_go():
    data = bytearray(IMAGES["kind 0"])
    decode_image(data)
    data.append(0)  # a bytearray that is still exported cannot grow


# --- randomness ---


def draw(**options):
    return decode_image(IMAGES["kind 0"], view=CROP, **options)


def test_torch_seeds_torch_images():
    torch.manual_seed(3)
    first = [draw() for _ in range(4)]
    torch.manual_seed(3)
    np.random.seed(99)
    again = [draw() for _ in range(4)]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(first[0], other) for other in first[1:])


def test_numpy_seeds_numpy_images():
    np.random.seed(3)
    first = [draw(output="numpy") for _ in range(4)]
    np.random.seed(3)
    torch.manual_seed(99)
    again = [draw(output="numpy") for _ in range(4)]
    np.testing.assert_array_equal(first, again)
    assert not all(np.array_equal(first[0], other) for other in first[1:])


@pytest.mark.parametrize(
    "make", [np.random.default_rng, lambda seed: torch.Generator().manual_seed(seed)], ids=["numpy", "torch"]
)
@pytest.mark.parametrize("output", ["torch", "numpy"])
def test_a_generator_is_drawn_from(make, output):
    rng = make(1)
    first = [np.asarray(draw(rng=rng, output=output)) for _ in range(4)]
    rng = make(1)
    state = torch.get_rng_state(), np.random.get_state()[1].copy()
    again = [np.asarray(draw(rng=rng, output=output)) for _ in range(4)]
    np.testing.assert_array_equal(first, again)
    assert not all(np.array_equal(first[0], other) for other in first[1:])
    assert torch.equal(state[0], torch.get_rng_state())
    assert np.array_equal(state[1], np.random.get_state()[1])


@pytest.mark.parametrize(
    ("view", "random"),
    [
        (None, False),
        (hr.Resize(20), False),
        (hr.Resize((20, 20)), False),
        (hr.CenterCrop(20), False),
        (hr.Letterbox(20), False),
        (hr.RandomResizedCrop(20), True),
        (hr.RandomCrop(20), True),
        (hr.Resize(20, flip=0.5), True),
        ([hr.Resize((20, 20)), hr.RandomVerticalFlip()], True),
    ],
    ids=repr,
)
def test_only_random_views_draw(view, random):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    decode_image(IMAGES["kind 0"], view=view)
    assert torch.equal(before, torch.get_rng_state()) is not random


def test_views_have_the_distribution_of_the_core():
    """Flips of half of all images: 4 standard deviations of 400 draws."""
    data = encode(photograph(1, 40, 30), "PNG")
    plain = decode_image(data)
    torch.manual_seed(0)
    flipped = sum(not torch.equal(decode_image(data, view=hr.RandomHorizontalFlip()), plain) for _ in range(400))
    assert 160 <= flipped <= 240


def test_equal_limits_make_equal_readers():
    """So `decode_image(limits=Limits(…))`, made anew at each call, finds the reader of the call before."""
    limits, same, other = hr.Limits(max_pixels=5), hr.Limits(max_pixels=5), hr.Limits(max_pixels=6)
    assert limits == same
    assert hash(limits) == hash(same)
    assert limits != other
    assert limits != 5
    assert hr.ImageReader(limits=limits) == hr.ImageReader(limits=same)
