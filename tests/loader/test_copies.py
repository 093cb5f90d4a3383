"""Fields with views of their own and several copies: what each copy is, that one decode serves all, and bad use."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import battery
import numpy as np
import pytest
from loader_data import encode, photograph
from PIL import Image

import headrace as hr
from headrace import _core
from headrace.augment import compile_augment
from headrace.errors import SampleError, UsageError
from headrace.loader.decoding.pixels import name_hash
from headrace.views import compile_view

LARGE = hr.RandomResizedCrop(32, scale=(0.4, 1), flip=0.5)
SMALL = hr.RandomResizedCrop((12, 16), scale=(0.05, 0.4), flip=0.5)
SEED = 3


def files(count=9):
    """JPEGs of every kind of size, and others in between."""
    pictures = [photograph(number, 150 - 9 * number, 70 + 11 * number) for number in range(count)]
    kinds = ["JPEG", "JPEG", "PNG"]
    return [encode(picture, kinds[at % 3]) for at, picture in enumerate(pictures)]


@pytest.fixture(scope="module")
def dataset():
    return hr.open({"image": files(), "label": list(range(9))})


def crops(**options):
    """DINO's fields."""
    return {
        "large": hr.Image(source="image", view=LARGE, copies=2, **options),
        "small": hr.Image(source="image", view=SMALL, copies=5, **options),
    }


def load(dataset, fields, **options):
    return hr.Loader(dataset, fields, **({"batch_size": 9, "seed": SEED, "output": "numpy", "threads": 2} | options))


def alone(dataset, views, field, size, level="best"):
    """Each sample cut by the view that it is given, one decode each: the path of a field without copies."""
    samples = np.arange(len(dataset))
    out = np.zeros((len(dataset), *size, 3), np.uint8)
    job = _core.Job(samples, np.zeros(len(samples), np.uint32), key=0, program=np.zeros((0, 10)), views=views)
    items = [dataset[at]["image"] for at in range(len(dataset))]
    options = _core.ImageOptions(filter=field.filter, shrink_to=field.shrink_to or 0)
    job.add_image(_core.Ranges(), options, memory=items, out=out.reshape(-1), height=size[0], width=size[1])
    engine = _core.Engine(1, level=level)
    engine.submit(job)
    job.wait()
    engine.close()
    assert not job.failures()
    return out.transpose(0, 3, 1, 2)


def drawn(dataset, name, view, copy, *, epoch=0):
    """Each sample's view under the key of the field's copy."""
    key = _core.hash64(_core.hash64(_core.hash64(SEED, epoch), name_hash(name)), copy)
    sizes = [Image.open(io.BytesIO(dataset[at]["image"])).size for at in range(len(dataset))]
    width, height = (np.array(side, np.int32) for side in zip(*sizes, strict=True))
    ids = np.arange(len(dataset))
    program = compile_view(view).ops
    return _core.sample_views(program, key, ids, np.zeros(len(ids), np.uint32), 0, width, height, copy=copy)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("level", _core.levels())
def test_each_copy_is_the_crop_that_it_would_be_alone(dataset, level):
    fields = crops(dct_scaling=False) | {
        name: hr.Image(source="image", view=SMALL, copies=3, filter=name, dct_scaling=False)
        for name in ("nearest", "bicubic", "linear")
    }
    fields["turned"] = hr.Image(source="image", view=[hr.RandomQuarterTurn(), SMALL], copies=3, dct_scaling=False)
    loader = load(dataset, fields, instruction_set=level)
    for epoch in range(2):
        (batch,) = loader
        for name, field in fields.items():
            size = batch[name].shape[-2:]
            assert batch[name].shape == (9, field.copies, 3, *size)
            for copy in range(field.copies):
                views = drawn(dataset, name, field.view, copy, epoch=epoch)
                assert np.array_equal(batch[name][:, copy], alone(dataset, views, field, size, level)), (name, copy)


def test_each_copy_of_a_smaller_image_is_what_it_would_be_alone(dataset):
    """`shrink_to`: one small copy of the image, of which all windows are cut; and so from a cache of these."""
    fields = crops(dct_scaling=False, shrink_to=40)
    plain = battery.epochs(load(dataset, fields))
    for name, field in fields.items():
        for copy in range(field.copies):
            size = plain[0][name].shape[-2:]
            views = drawn(dataset, name, field.view, copy)
            assert np.array_equal(plain[0][name][:, copy], alone(dataset, views, field, size)), (name, copy)
    loader = load(dataset, fields, cache="ram:9MB")
    battery.assert_equal(battery.epochs(loader), plain, "cache")
    stats = loader.stats()
    assert (stats.cache.hits, stats.cache.misses, stats.stages["probe"].items) == (9, 0, 0)
    assert stats.cache.cuts == {
        "large": "pixels whose short side is at most 40, for several views",
        "small": "those of 'large'",
    }


def test_the_key_of_a_field_is_its_names():
    """As written in docs/determinism.md: part of what a saved state promises."""
    assert name_hash("global") == 0x5D78A12160A475FA


def test_a_dct_scale_is_the_finest_that_any_window_needs():
    """Small windows of large pictures have more detail beside a large one than alone, never less."""
    pictures = [encode(photograph(number, 800, 600), quality=95) for number in range(4)]
    dataset = hr.open({"image": pictures})
    tiny = hr.Resize((40, 40))
    alone = {"tiny": hr.Image(source="image", view=tiny, dct_scaling=True)}
    exact = load(dataset, {"tiny": hr.Image(source="image", view=tiny, dct_scaling=False)})
    for other, scaled in [(hr.Resize((60, 60)), True), (hr.Resize((600, 800)), False)]:
        together = load(dataset, alone | {"other": hr.Image(source="image", view=other, dct_scaling=True)})
        (batch,), (first,), (full,) = together, load(dataset, alone), exact
        assert np.array_equal(batch["tiny"], first["tiny"] if scaled else full["tiny"])


@pytest.fixture(scope="module")
def lossless():
    """Small PNGs, whose pixels crops show unchanged."""
    pictures = [np.asarray(photograph(number, 50 + number, 41 - number)) for number in range(4)]
    return pictures, hr.open({"image": [encode(Image.fromarray(each), "PNG") for each in pictures]})


def five(picture, height, width):
    """torchvision's five crops, [5, height, width, 3]."""
    tall, wide = picture.shape[:2]
    down, right = tall - height, wide - width
    middle = round(down / 2.0), round(right / 2.0)
    corners = [(0, 0), (0, right), (down, 0), (down, right), middle]
    return np.stack([picture[top : top + height, left : left + width] for top, left in corners])


def test_five_and_ten_crops_are_torchvisions(lossless):
    pictures, dataset = lossless
    fields = {
        "five": hr.Image(source="image", view=hr.FiveCrop((20, 30))),
        "ten": hr.Image(source="image", view=hr.TenCrop(20)),
        "upside": hr.Image(source="image", view=hr.TenCrop(20, vertical_flip=True), channels_last=False),
    }
    (batch,) = load(dataset, fields, batch_size=4)
    for at, picture in enumerate(pictures):
        assert np.array_equal(batch["five"][at].transpose(0, 2, 3, 1), five(picture, 20, 30))
        for name, turned in [("ten", picture[:, ::-1]), ("upside", picture[::-1])]:
            expected = np.concatenate([five(picture, 20, 20), five(turned, 20, 20)])
            assert np.array_equal(batch[name][at].transpose(0, 2, 3, 1), expected)


def test_tiles_cut_the_image(lossless):
    pictures, dataset = lossless
    view = [hr.Resize((40, 60)), hr.Tiles(20, grid=(2, 3))]
    fields = {"tiles": hr.Image(source="image", view=view), "whole": hr.Image(source="image", view=hr.Resize((40, 60)))}
    (batch,) = load(dataset, fields, batch_size=4)
    for (row, column), number in zip(product(range(2), range(3)), range(6), strict=True):
        part = batch["whole"][:, :, 20 * row : 20 * row + 20, 20 * column : 20 * column + 20]
        assert np.array_equal(batch["tiles"][:, number], part)
    (batch,) = load(dataset, {"image": hr.Image(view=hr.Tiles((9, 15), grid=(1, 4)))}, batch_size=4)
    for at, picture in enumerate(pictures):
        down, right = picture.shape[0] - 9, picture.shape[1] - 15
        tiles = [picture[round(down / 2) :][:9, round(right * n / 3) :][:, :15] for n in range(4)]
        assert np.array_equal(batch["image"][at].transpose(0, 2, 3, 1), np.stack(tiles))


def test_an_image_too_small_for_a_window_is_a_bad_sample(lossless):
    loader = load(lossless[1], {"image": hr.Image(view=hr.FiveCrop(45))}, on_error="raise")
    with pytest.raises(SampleError, match=r"FiveCrop of 45 x 45 .* from an image of 50 x 41 .*: resize first"):
        list(loader)


def test_copies_without_a_view_draw_the_loaders(dataset):
    (batch,) = load(dataset, {"image": hr.Image(copies=2, dct_scaling=False)}, view=LARGE)
    for copy in range(2):
        views = drawn(dataset, "image", LARGE, copy)
        assert np.array_equal(batch["image"][:, copy], alone(dataset, views, hr.Image(), (32, 32)))
    (one,) = load(dataset, {"image": hr.Image(copies=1, dct_scaling=False)}, view=LARGE)
    assert np.array_equal(one["image"], batch["image"][:, :1])
    (own,) = load(dataset, {"image": hr.Image(view=LARGE, dct_scaling=False)})
    assert np.array_equal(own["image"], batch["image"][:, 0])


def test_each_copy_has_an_augmentation_of_its_own(dataset):
    """Drawn under the key of the copy's view. The Loader's comes first, under a key below that."""
    sample, own = hr.RandomSolarize(128, p=0.5), [hr.ColorJitter(0.4, 0.4, 0.4, 0.1), hr.RandomGrayscale(p=0.5)]
    plain = {"large": hr.Image(source="image", view=LARGE, copies=3)}
    (before,) = load(dataset, plain)
    (batch,) = load(dataset, {"large": replace(plain["large"], augment=own)}, augment=sample)
    field_key = _core.hash64(_core.hash64(SEED, 0), name_hash("large"))
    for at, copy in product(range(9), range(3)):
        chain, copy_key = [], _core.hash64(field_key, copy)
        for what, key in [(sample, _core.hash64(copy_key, 1)), (own, copy_key)]:
            program = compile_augment("augment", what).native
            chain += _core.draw_chain(program, key, at, 0, width=32, height=32)
        pixels = np.ascontiguousarray(before["large"][at, copy].transpose(1, 2, 0))
        assert np.array_equal(batch["large"][at, copy].transpose(1, 2, 0), _core.apply_chain(pixels, chain))


def test_what_follows_the_loaders_view_does_not_see_other_fields(dataset):
    """Pixels beside crops of one column are what they are alone, up to the scale of the decode."""
    plain = {"image": hr.Image(dct_scaling=False), "shape": hr.Geometry()}
    (alone,) = load(dataset, plain, view=SMALL)
    (batch,) = load(dataset, crops() | plain, view=SMALL)
    for name in ("window", "flip"):
        assert np.array_equal(batch["shape"][name], alone["shape"][name])
    assert np.array_equal(batch["image"], alone["image"])
    assert list(batch) == ["large", "small", "image", "shape"]


def test_read_and_decoded_once(dataset):
    loader = load(dataset, crops() | {"image": hr.Image()}, view=LARGE)
    list(loader)
    counted = loader.stats().stages
    assert [counted[stage].items for stage in ("read", "probe", "decode")] == [9, 9, 9]


def test_fields_of_other_modes_are_right_beside_them(dataset):
    """Grey and colour, turned and not, of copies and of one."""
    fields = crops() | {"grey": hr.Image(source="image", view=LARGE, mode="L", copies=2, dtype="float32")}
    (batch,) = load(dataset, fields)
    (alone,) = load(dataset, {"grey": fields["grey"]})
    assert batch["grey"].shape == (9, 2, 1, 32, 32)
    assert np.array_equal(batch["grey"], alone["grey"])


@pytest.mark.parametrize("content", ["PPM", "TIFF", "cut short", "none"])
def test_rows_that_are_mended_have_all_copies(dataset, content):
    """Files that a library decodes, and samples in whose place another comes."""
    contents = files()
    picture = photograph(1, 90, 80)
    bad = {"cut short": contents[0][:900], "none": b""}
    contents[4] = bad[content] if content in bad else encode(picture, content)
    loader = load(hr.open({"image": contents}), crops(), max_bad=0.2)
    (batch,) = loader
    (good,) = load(dataset, crops())
    others = np.arange(9) != 4
    for name in crops():
        assert np.array_equal(batch[name][others], good[name][others])
        assert all(batch[name][4, copy].std() > 1 for copy in range(batch[name].shape[1]))
    if content not in bad:
        assert loader.stats().replaced == 0
        contents[4] = encode(picture, "PNG")
        (same,) = load(hr.open({"image": contents}), crops())
        assert all(np.array_equal(batch[name], same[name]) for name in crops())


def test_map_sees_the_copies_of_its_sample(dataset):
    seen = []

    def look(sample, rng):
        seen.append({name: value.shape for name, value in sample.items()})
        return sample | {"large": sample["large"][::-1]}

    (batch,) = load(dataset, crops(), map=look)
    (plain,) = load(dataset, crops())
    assert seen == [{"large": (2, 3, 32, 32), "small": (5, 3, 12, 16)}] * 9
    assert np.array_equal(batch["large"], plain["large"][:, ::-1])


def test_a_cache_holds_one_columns_bytes_once(dataset):
    loader = load(dataset, crops() | {"image": hr.Image()}, view=LARGE, cache="ram:9MB")
    plain = battery.epochs(load(dataset, crops() | {"image": hr.Image()}, view=LARGE))
    battery.assert_equal(battery.epochs(loader), plain, "cache")
    cache = loader.stats().cache
    assert (cache.hits, cache.misses) == (9, 0)
    assert cache.cuts == {
        "image": "files' bytes, for several views",
        "large": "those of 'image'",
        "small": "those of 'image'",
    }


def test_a_view_of_its_own_is_cached_as_far_as_it_is_fixed(dataset):
    fields = {"image": hr.Image(view=hr.Resize((20, 24))), "other": hr.Image(source="image", view=SMALL, mode="L")}
    loader = load(dataset, fields, cache="ram:9MB")
    battery.assert_equal(battery.epochs(loader), battery.epochs(load(dataset, fields)), "cache")
    assert loader.stats().cache.cuts == {
        "image": "20x24x3 uint8 pixels",
        "other": "files' bytes, for a random view",
    }


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: hr.Image(copies=0), "Image: expected copies to be None or an int from 1 to 64, got 0"),
        (lambda: hr.Image(copies=65), "got 65"),
        (lambda: hr.Image(copies=True), "got True"),
        (lambda: hr.Image(copies=2.0), "got 2.0"),
        (lambda: hr.Image(view=hr.Resize(9)), r"Image: expected view= to give every image one size, got Resize.size=9"),
        (lambda: hr.Image(view=[hr.RandomScale((9, 12)), hr.RandomCrop(9)]), "expected view= to give every image one"),
        (lambda: hr.Image(view=hr.FiveCrop(9), copies=4), r"expected copies=5, as FiveCrop.* got 4; leave copies out"),
        (lambda: hr.Image(copies=2, dtype="uint16"), "expected copies of a picture of 8 bits, got dtype='uint16'"),
        (lambda: hr.Image(copies=2, channels=4), "and channels=4; take mode="),
        (lambda: hr.Mask(copies=2), "Mask: .* got copies="),
        (lambda: hr.Depth(view=LARGE), "Depth: .* got view="),
        (lambda: hr.Normals(copies=2), "Normals: .* got copies="),
        (
            lambda: hr.ImageReader(view=hr.FiveCrop(9), output="numpy"),
            "one window an image, got FiveCrop.*, which cuts 5; a Loader's",
        ),
    ],
)
def test_bad_fields(make, says):
    with pytest.raises(UsageError, match=says):
        make()


@pytest.mark.parametrize(
    ("fields", "options", "says"),
    [
        ({"image": hr.Image()}, {"view": hr.FiveCrop(9)}, "view: expected one window a sample, .* which cuts 5; give"),
        ({"image": hr.Image(view=LARGE)}, {"view": LARGE}, "that takes it, got views of their own for all"),
        ({"image": hr.Image(copies=2)}, {}, "field 'image': expected a view of one fixed size for its 2 copies, got"),
        ({"image": hr.Image(copies=2)}, {"view": hr.Resize(9)}, r"got view=Resize.* Image\(view=RandomResizedCrop"),
        (
            {"image": hr.Image(copies=2)},
            {"view": [hr.RandomScale((40, 50)), hr.RandomCrop(30)]},
            "a view of one fixed size for its 2 copies",
        ),
        (
            {"image": hr.Image(view=LARGE), "at": hr.Geometry()},
            {},
            "field 'at': expected a field of pixels with it that",
        ),
        ({"image": hr.Image(copies=2), "at": hr.Geometry()}, {"view": LARGE}, "add one without view= and copies="),
        ({"image": hr.Image(view=LARGE)}, {"view_from": "image"}, "view_from: .* follows the Loader's view, one of"),
    ],
)
def test_bad_loaders(dataset, fields, options, says):
    with pytest.raises(UsageError, match=says):
        load(dataset, fields, **options)


def test_buckets_and_scales_leave_views_of_their_own_alone(dataset):
    """Sizes of the others change from batch to batch."""
    scales = hr.RandomScale((20, 26), multiple_of=4)
    fields = crops() | {"image": hr.Image()}
    options = {"view": scales, "buckets": hr.Buckets("aspect", count=2), "shuffle": True, "batch_size": 3}
    shapes = [{name: each.shape[1:] for name, each in batch.items()} for batch in load(dataset, fields, **options)]
    assert {shape["large"] for shape in shapes} == {(2, 3, 32, 32)}
    assert {shape["small"] for shape in shapes} == {(5, 3, 12, 16)}
    assert len({shape["image"] for shape in shapes}) > 1


def test_the_examples_of_the_page(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs/loader.md").read_text()
    section = page.split("### Several crops of one image")[1].split("\n## ")[0]
    first, second = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    folder = tmp_path / "train" / "ant"
    folder.mkdir(parents=True)
    for number, data in enumerate(files(4)):
        (folder / f"{number}.jpg").write_bytes(data)
    monkeypatch.chdir(tmp_path)
    names = {"hr": hr}
    exec(first, names)
    batch = next(iter(names["loader"]))
    assert [tuple(batch[name].shape) for name in ("global", "local")] == [(4, 2, 3, 224, 224), (4, 8, 3, 96, 96)]
    exec(second, names)
    shapes = [next(iter(hr.Loader("train/", names[name], batch_size=4)))["image"].shape for name in ("ten", "sixths")]
    assert shapes == [(4, 10, 3, 224, 224), (4, 6, 3, 224, 224)]


def test_mixtures_have_copies(dataset):
    def sources(**options):
        return {name: load(dataset, crops(**options), shuffle=True, batch_size=6) for name in "ab"}

    for batches in ("mixed", "one-source"):
        batch = next(iter(hr.mix(sources(), weights={"a": 1, "b": 1}, batches=batches)))
        assert batch["large"].shape == (6, 2, 3, 32, 32)
        assert batch["small"].strides[2] == 1  # channels-last within a copy
    other = {"a": load(dataset, crops()), "b": load(dataset, crops() | {"small": hr.Image(source="image", view=SMALL)})}
    with pytest.raises(
        UsageError, match=r"fields of pixels .* small uint8 of 5 copies of 3 channels of 12x16 of 'a' and"
    ):
        hr.mix(other, weights={"a": 1, "b": 1}, batches="mixed")
