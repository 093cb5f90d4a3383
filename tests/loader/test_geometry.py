"""`Geometry`: each pixel of the output, mapped back, is the pixel of the source that its colour names."""

from __future__ import annotations

import json

import battery
import numpy as np
import PIL.Image
import pytest
import torch
from loader_data import encode, photograph

import headrace as hr
from headrace.errors import UsageError

COUNT = 10
FIELDS = {"image": hr.Image(filter="nearest"), "view": hr.Geometry(), "number": hr.Label()}


def size_of(number):
    """(width, height)"""
    return 70 + 13 * (number % 4), 50 + 9 * (number % 3)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Images whose pixels say where they lie: red is x, green is y, blue the sample's number + 1. One is damaged."""
    root = tmp_path_factory.mktemp("geometry")
    rows = []
    for number in range(COUNT):
        y, x = np.mgrid[: size_of(number)[1], : size_of(number)[0]]
        pixels = np.stack([x, y, np.full_like(x, number + 1)], -1).astype(np.uint8)
        PIL.Image.fromarray(pixels).save(root / f"{number}.png")
        rows.append({"image": f"{number}.png", "number": number, "half": f"half{number}.png"})
        PIL.Image.fromarray(pixels[::2, ::2]).save(root / f"half{number}.png")
    (root / "2.png").write_bytes((root / "2.png").read_bytes()[:90])
    path = root / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return hr.open(path)


def load(data, fields=FIELDS, **options):
    given = {"batch_size": 4, "threads": 2, "output": "numpy", "max_bad": 0.5, "shuffle": True, "seed": 1}
    return hr.Loader(data, fields, **(given | options))


def check(batch, row):
    """Every pixel: inside the image at its own place of the source, in padding outside of it. Returns the padding."""
    pixels = np.moveaxis(np.asarray(batch["image"][row]), 0, -1).astype(int)
    window, scale, flip, transposed, size = (np.asarray(batch["view"][part][row]) for part in batch["view"])
    height, width = pixels.shape[:2]
    padding = 0
    for down in range(height):
        for across in range(width):
            x, y = across + 0.5, down + 0.5
            x, y = width - x if flip[0] else x, height - y if flip[1] else y
            x, y = (y, x) if transposed else (x, y)
            x, y = window[0] + x / scale[0], window[1] + y / scale[1]
            red, green, blue = pixels[down, across]
            inside = 0 <= x < size[1] and 0 <= y < size[0]
            assert inside == (blue > 0)
            padding += blue == 0
            if inside:
                assert abs(x - 0.5 - red) <= 0.501
                assert abs(y - 0.5 - green) <= 0.501
                assert (size[1], size[0]) == size_of(blue - 1)
    np.testing.assert_allclose(
        (window[2:] - window[:2]) * scale, [width, height][:: -1 if transposed else 1], rtol=1e-5
    )
    return padding


VIEWS = {
    "crop, flip": (hr.RandomResizedCrop((18, 22), flip=0.5), False),
    "squeezed, both flips": ([hr.Resize((17, 29)), hr.RandomHorizontalFlip(), hr.RandomVerticalFlip()], False),
    "turned, both flips": ([hr.RandomQuarterTurn(), hr.RandomResizedCrop((18, 22), flip=0.5)], False),
    "padded, turned, both flips": ([hr.RandomCrop(60, padding=4, pad_if_needed=True), hr.RandomQuarterTurn()], True),
    "letterbox, both flips": ([hr.Letterbox((24, 20)), hr.RandomHorizontalFlip(), hr.RandomVerticalFlip()], True),
    "padded crop": (hr.RandomCrop((60, 90), padding=4, pad_if_needed=True, flip=0.5), True),
    "center, padded": ([hr.Resize(21), hr.CenterCrop((20, 44), flip=1.0)], True),
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.one_in(6)
def test_each_pixel_maps_back(data, name):
    view, pads = VIEWS[name]
    batches = list(load(data, view=view))
    padding = [check(batch, row) for batch in batches for row in range(len(batch["number"]))]
    assert len(padding) == COUNT
    assert (max(padding) > 0) == pads
    flips = np.concatenate([batch["view"]["flip"] for batch in batches])
    assert flips[:, 0].any()
    assert flips[:, 1].any() == ("both" in name)


def test_a_crop_of_nothing_but_padding_has_no_area(data):
    (batch,) = load(data, view=hr.RandomCrop((4, 4), padding=40), batch_size=COUNT)
    unseen = (batch["image"] == 0).reshape(COUNT, -1).all(1)
    assert 0 < unseen.sum() < COUNT
    for row in np.flatnonzero(~unseen):
        check(batch, row)
    window = batch["view"]["window"][unseen]
    np.testing.assert_array_equal(window[:, :2], window[:, 2:])
    assert not batch["view"]["scale"][unseen].any()


def test_types_and_shapes_in_torch_and_numpy(data):
    (torch_batch, *_), (numpy_batch, *_) = (
        list(load(data, view=hr.Resize((8, 8)), output=output)) for output in ("torch", "numpy")
    )
    kinds = {
        "window": ((4, 4), "float32"), "scale": ((4, 2), "float32"), "flip": ((4, 2), "bool"),
        "transposed": ((4,), "bool"), "original_size": ((4, 2), "int64"),
    }  # fmt: skip
    assert list(torch_batch["view"]) == list(kinds)
    for part, (shape, dtype) in kinds.items():
        found, array = torch_batch["view"][part], numpy_batch["view"][part]
        assert (tuple(found.shape), found.dtype) == (shape, getattr(torch, dtype))
        assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
        np.testing.assert_array_equal(found.numpy(), array)


def test_buckets_that_fill_images_up(data):
    view = hr.RandomScale((16, 24), multiple_of=8, flip=0.5)
    batches = list(load(data, view=view, buckets=hr.Buckets("aspect", count=2)))
    assert sum(check(batch, row) for batch in batches for row in range(len(batch["number"]))) > 0


def test_a_map_is_given_its_own_rows(data):
    def moved(sample, rng):
        return sample | {"corner": sample["view"]["window"][:2].copy()}

    plain = list(load(data, view=hr.RandomResizedCrop(12)))
    for workers in (0, 1):
        for batch, expected in zip(
            load(data, view=hr.RandomResizedCrop(12), map=moved, map_workers=workers), plain, strict=True
        ):
            np.testing.assert_array_equal(batch["corner"], expected["view"]["window"][:, :2])
            np.testing.assert_array_equal(batch["view"]["scale"], expected["view"]["scale"])


@pytest.mark.parametrize("batches", ["one-source", "mixed"])
def test_sources_of_a_mixture(data, batches):
    sources = {name: load(data, view=hr.RandomResizedCrop(9, flip=0.5), seed=seed) for seed, name in enumerate("ab")}
    for batch in hr.mix(sources, weights={"a": 2, "b": 1}, batches=batches):
        for row in range(len(batch["number"])):
            check(batch, row)


def test_the_same_from_a_cache_on_any_rank_and_after_a_stop(data, tmp_path):
    def make(**overrides):
        given = {"view": hr.Resize((12, 10), flip=0.5), "cache": f"disk:{tmp_path}:20MB"}
        return load(data, **(given | overrides))

    battery.check_world_sizes(make, 4)
    battery.check_resume_at_every_step(make)
    battery.assert_equal(battery.kept(make()), battery.kept(make(cache=None)), "cached")


def test_the_source_is_the_field_that_the_view_is_drawn_from(data):
    fields = {"half": hr.Image(), **FIELDS}
    for name, factor in (("half", 2), ("image", 1)):
        batch = next(iter(load(data.select([1, 4]), fields, view=hr.Resize((10, 10)), view_from=name, batch_size=2)))
        expected = [[-(-size_of(each)[1] // factor), -(-size_of(each)[0] // factor)] for each in batch["number"]]
        assert batch["view"]["original_size"].tolist() == expected


def test_without_an_image_there_is_no_view(data):
    with pytest.raises(UsageError, match="field 'view': expected an image field with it, whose view"):
        load(data, {"view": hr.Geometry(), "number": hr.Label()})


def test_a_resize_of_what_a_crop_pads_is_an_error_and_no_bad_sample():
    """A good image is never replaced for it; torchvision would resize the padding, too."""
    files = [encode(photograph(number, 30, 20), "PNG") for number in range(3)]
    loader = hr.Loader(hr.open(files), {"image": hr.Image()}, view=[hr.CenterCrop(25), hr.Resize(9)], batch_size=1)
    with pytest.raises(UsageError, match="pads it"):
        list(loader)
