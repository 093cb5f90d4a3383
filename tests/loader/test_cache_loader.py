"""Loaders with a cache: the same batches as without, in every epoch, and what is looked up and kept."""

from __future__ import annotations

import gc
import os
import shutil
import warnings

import battery
import dense_data
import numpy as np
import PIL.Image
import points_data
import pyarrow as pa
import pytest
from loader_data import COUNT, encode, photograph, write_folder, write_tar
from processes import run_python

import headrace as hr
from headrace.errors import UsageError
from headrace.fields.image import IMAGENET

RAM = f"ram:{40_000_000 + os.getpid()}B"
"""Not shared with other runs of these tests: caches of another limit are others."""
FIXED = [hr.Resize(24), hr.CenterCrop(24, fill=7)]
FLIPPED = hr.Resize((20, 28), flip=0.5)
RANDOM = hr.RandomResizedCrop(20, flip=0.5)
DENSE = {
    "rgb": hr.Image(),
    "depth": hr.Depth(1 / 1000, normalize=hr.Quantiles()),
    "mask": hr.Mask(ignore=-1, remap={255: -1}, dtype="int16"),
    "normals": hr.Normals(dtype="float16"),
}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    root = tmp_path_factory.mktemp("cached")
    damaged = write_folder(root / "damaged")
    for number, kept in ((3, 200), (17, 10)):
        path = next(damaged.glob(f"*/{number:04}.*"))
        path.write_bytes(path.read_bytes()[:kept])
    return {
        "photos": hr.open(write_folder(root / "photos")),
        "damaged": hr.open(damaged),
        "tar": hr.open(write_tar(root / "photos.tar")),
        "dense": dense_data.write_tar(root / "dense"),
        "points": hr.open(points_data.write_coco(root / "points", damaged=(3, 8))),
    }


def load(place, fields=None, **options):
    given = {"batch_size": 8, "shuffle": True, "seed": 5, "threads": 2, "output": "numpy"}
    return hr.Loader(place, fields, **(given | options))


def image(**options):
    return {"image": hr.Image(**options)}


CASES = {
    "uint8": ("photos", image(), {"view": FIXED}, "final"),
    "planar uint8, flips": ("photos", image(channels_last=False), {"view": FLIPPED}, "final"),
    "floats, flips": ("photos", image(dtype="float32", normalize=IMAGENET), {"view": FLIPPED}, "final"),
    "planar halves": ("photos", image(dtype="float16", channels_last=False), {"view": FIXED}, "final"),
    "bfloat16": ("photos", image(dtype="bfloat16", normalize=IMAGENET), {"view": FIXED, "output": "torch"}, "final"),
    "grey floats": ("photos", image(mode="L", dtype="float32"), {"view": FLIPPED}, "final"),
    "letterbox, two flips": (
        "photos",
        image(),
        {"view": [hr.Letterbox((30, 41), fill=(1, 2, 3)), hr.RandomHorizontalFlip(), hr.RandomVerticalFlip(0.3)]},
        "final",
    ),
    "a flip for certain": ("photos", image(), {"view": [hr.Resize(30, flip=1.0), hr.CenterCrop(27)]}, "final"),
    "a flip before the end": ("photos", image(), {"view": [hr.Resize(30, flip=0.5), hr.CenterCrop(27)]}, "file"),
    "whole images": ("photos", image(), {"view": None, "batch_size": 1}, "final"),
    "random": ("photos", image(), {"view": RANDOM}, "file"),
    "turned": ("photos", image(), {"view": [*FIXED, hr.RandomQuarterTurn()]}, "file"),
    "turned, shrunk": ("photos", image(shrink_to=30), {"view": [RANDOM, hr.RandomQuarterTurn()]}, "shrunk"),
    "random, shrunk": ("photos", image(shrink_to=30), {"view": RANDOM}, "shrunk"),
    "random, shrunk, grey": ("photos", image(shrink_to=30, mode="L", dtype="float32"), {"view": RANDOM}, "shrunk"),
    "fixed, shrunk": ("photos", image(shrink_to=30), {"view": FIXED}, "final"),
    "scales": (
        "photos",
        image(),
        {"view": hr.RandomScale((16, 24), flip=0.5), "buckets": hr.Buckets("aspect")},
        "file",
    ),
    "a budget": ("photos", image(), {"view": FLIPPED, "batch_size": hr.Budget(pixels=6000)}, "final"),
    "filled up": ("photos", image(), {"view": hr.Resize(20), "buckets": hr.Buckets("aspect")}, "file"),
    "bad samples": ("damaged", image(), {"view": FLIPPED, "max_bad": 0.5}, "final"),
    "bad samples, random": ("damaged", image(shrink_to=30), {"view": RANDOM, "max_bad": 0.5}, "shrunk"),
    "wrapped": ("photos", image(), {"view": FLIPPED, "remainder": "wrap", "batch_size": 7}, "final"),
    "dense": ("dense", DENSE, {"view": hr.Resize((30, 40))}, "final"),
    "dense, flips": ("dense", DENSE, {"view": FLIPPED}, "final"),
    "dense, random": ("dense", DENSE, {"view": RANDOM}, "file"),
    "dense as torch": ("dense", DENSE, {"view": FLIPPED, "output": "torch"}, "final"),
    "boxes, Pillow's images": ("points", points_data.fields(), {"view": FLIPPED, "max_bad": 0.5}, "final"),
    "boxes, random": ("points", points_data.fields(), {"view": RANDOM, "max_bad": 0.5}, "file"),
    "texts and labels of a tar": (
        "tar",
        image() | {"label": hr.Label(source="cls"), "txt": hr.Raw()},
        {"view": FLIPPED},
        "final",
    ),
}


@pytest.mark.one_in(20)
@pytest.mark.parametrize(("place", "fields", "options", "cut"), CASES.values(), ids=CASES)
def test_batches_are_those_of_no_cache(places, place, fields, options, cut):
    expected = battery.epochs(load(places[place], fields, **options), 3)
    cached = load(places[place], fields, cache=RAM, **options)
    battery.assert_equal(battery.epochs(cached, 2), expected[: 2 * len(expected) // 3], "epochs 0 and 1")
    battery.assert_equal(battery.epochs(cached, 1), expected[2 * len(expected) // 3 :], "epoch 2")
    stats = cached.stats().cache
    looked_up = sum(not isinstance(field, hr.Boxes | hr.Keypoints) for field in fields.values())
    assert stats.damaged == 0
    assert stats.hits > 0
    if place not in ("damaged", "points"):
        assert (stats.hits, stats.misses) == (looked_up * cached.stats().samples, 0)
    first = next(iter(stats.cuts.values()))
    assert first.startswith("files' bytes") == (cut == "file")
    assert ("short side" in first) == (cut == "shrunk")


@pytest.mark.parametrize("case", ["floats, flips", "random, shrunk", "dense, flips", "boxes, Pillow's images"])
@pytest.mark.parametrize("cache", ["ram", "disk"])
@pytest.mark.one_in(3)
def test_battery(places, tmp_path, case, cache):
    """Loaders that come later find what the first ones kept."""
    place, fields, options, _ = CASES[case]
    text = RAM if cache == "ram" else f"disk:{tmp_path}:40MB"

    def make(**overrides):
        return load(places[place], fields, **(options | {"cache": text, "batch_size": 8} | overrides))

    keeps = make()
    expected = battery.epochs(load(places[place], fields, **(options | {"batch_size": 8})))
    battery.assert_equal(battery.epochs(make()), expected, "cached")
    battery.check_threads(make)
    battery.check_world_sizes(make, 8)
    battery.check_resume_at_every_step(make)
    del keeps


SIDES = [(13, 61), (61, 13), (33, 32), (1, 7), (97, 98)]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("filter", ["triangle", "nearest", "bicubic", "linear"])
@pytest.mark.parametrize(("height", "width"), SIDES)
def test_flips_of_what_is_kept_are_flips_of_the_image(places, height, width, filter):
    """Bits and all, with padding, also where sizes are odd and images grow."""
    turned = [hr.RandomHorizontalFlip(0.5), hr.RandomVerticalFlip(0.5)]
    view = [hr.Resize((height + 2, width)), hr.CenterCrop((height, width + 3), fill=(5, 6, 7)), *turned]
    options = {"view": view, "fields": image(filter=filter, dtype="float32"), "seed": height}
    expected = battery.epochs(load(places["photos"], **options), 3)
    battery.assert_equal(battery.epochs(load(places["photos"], cache=RAM, **options), 3), expected, "flips")


def test_the_argument_is_checked(places):
    with pytest.raises(UsageError, match=r'cache: expected "ram:SIZE" or "disk:FOLDER:SIZE", such as .*, got \'8GB\''):
        load(places["photos"], image(), view=FIXED, cache="8GB")


def test_sizes_that_are_only_asked_for_are_no_misses(places):
    loader = load(places["photos"], image(), batch_size=1, cache=RAM)
    battery.kept(loader)
    assert loader.stats().cache.misses == COUNT


def test_normals_are_kept_as_they_are_only_without_flips(places):
    for view, cut in ((hr.Resize((30, 40)), "30x40x3 float16 values"), (FLIPPED, "files' bytes, for a random view")):
        loader = load(places["dense"], DENSE, view=view, cache=RAM)
        list(loader)
        assert loader.stats().cache.cuts["normals"] == cut


def test_a_third_of_the_room_gives_a_third_of_hits(places):
    """And no other samples push out those that are kept."""
    one = 24 * 24 * 3
    limit = 8192 + int(0.35 * COUNT * one) + 1 + os.getpid() % 1000
    loader = load(places["photos"], image(), view=FIXED, cache=f"ram:{limit}B")
    kept = (limit - 8192) // one
    list(loader)
    assert loader.stats().cache.admitted == kept == 14
    for _ in range(3):
        list(loader)
        stats = loader.stats().cache
        assert (stats.hits, stats.misses, stats.admitted) == (kept, COUNT - kept, 0)
        assert stats.hit_rate == 0.35
        assert stats.stopped == "full"
        assert stats.used_bytes <= limit


def test_statistics_say_what_is_kept(places):
    loader = load(
        places["photos"], image(dtype="float32"), view=FLIPPED, cache=f"ram:{2_000_000 + os.getpid() % 10_000}B"
    )
    list(loader)
    list(loader)
    lines = str(loader.stats()).splitlines()
    assert lines[-2] == "  cache (ram): 100.0% hits, 75.4 kB of 2.0 MB used"
    assert lines[-1] == "    cached: image: 20x28x3 uint8 pixels before they become float32, before flips"
    assert loader.stats().to_dict()["cache"]["hits"] == COUNT
    without = load(places["photos"], image(), view=FLIPPED)
    list(without)
    assert without.stats().cache is None


def test_floats_and_bytes_share_what_is_kept(places):
    first = load(places["photos"], image(), view=FIXED, cache=RAM)
    list(first)
    second = load(places["photos"], image(dtype="float32", normalize=IMAGENET), view=FIXED, cache=RAM)
    expected = battery.kept(load(places["photos"], image(dtype="float32", normalize=IMAGENET), view=FIXED))
    battery.assert_equal(battery.kept(second), expected, "floats")
    assert second.stats().cache.hits == COUNT


def test_a_selection_shares_what_is_kept(places):
    first = load(places["photos"], image(), view=FIXED, cache=RAM)
    list(first)
    part = places["photos"].select(range(3, 20, 2))
    second = load(part, image(), view=FIXED, cache=RAM)
    battery.assert_equal(battery.kept(second), battery.kept(load(part, image(), view=FIXED)), "selection")
    assert second.stats().cache.hits == len(part)


OTHERS = {
    "view": {"view": [hr.Resize(24), hr.CenterCrop(24, fill=8)]},
    "size": {"view": [hr.Resize(25), hr.CenterCrop(24, fill=7)]},
    "field": {"fields": image(dct_scaling=False)},
    "layout": {"fields": image(channels_last=False)},
    "shrunk": {"fields": image(shrink_to=40)},
    "limits": {"limits": hr.Limits(max_pixels=100_000)},
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_whatever_changes_pixels_has_a_cache_of_its_own(places, other):
    first = load(places["photos"], image(), view=FIXED, cache=RAM)
    list(first)
    options = {"fields": image(), "view": FIXED} | other
    second = load(places["photos"], cache=RAM, **options)
    battery.assert_equal(battery.kept(second), battery.kept(load(places["photos"], **options)), "another")
    assert second.stats().cache.hits == 0


def test_files_that_changed_are_noticed(places, tmp_path):
    root = shutil.copytree(places["photos"].where("image", 0)[0].split("/ant/")[0], tmp_path / "photos")
    cache = f"disk:{tmp_path / 'cache'}:40MB"
    list(load(root, image(), view=FIXED, cache=cache))
    again = load(root, image(), view=FIXED, cache=cache)
    list(again)
    assert again.stats().cache.hits == COUNT
    path = next(root.glob("*/0005.*"))
    path.write_bytes(encode(photograph(99, 60, 50), "PNG"))
    with pytest.warns(UserWarning, match="is of files that have changed since, and is made anew"):
        changed = load(root, image(), view=FIXED, cache=cache)
    battery.assert_equal(battery.kept(changed), battery.kept(load(root, image(), view=FIXED)), "changed")
    assert changed.stats().cache.hits == 0


def test_files_of_equal_names_sizes_and_times_are_told_apart(tmp_path):
    for number, root in enumerate((tmp_path / "first", tmp_path / "second")):
        for sample in range(4):
            path = root / "ant" / f"{sample}.bmp"
            path.parent.mkdir(parents=True, exist_ok=True)
            PIL.Image.fromarray(np.full((24, 24, 3), 40 * sample + number, np.uint8)).save(path)
            os.utime(path, (1, 1))
    first = load(tmp_path / "first", cache=RAM)
    list(first)
    second = load(tmp_path / "second", cache=RAM)
    battery.assert_equal(battery.kept(second), battery.kept(load(tmp_path / "second")), "second")
    assert second.stats().cache.hits == 0


@pytest.mark.one_in(2)
@pytest.mark.parametrize("values", ["bytes", "bytes or paths"])
def test_tables_in_memory_of_equal_lengths_are_told_apart(tmp_path, values):
    """Two of them made within a tick of the kernel's clock have equal times; content decides, in any process."""
    images = [encode(PIL.Image.new("L", (8, 8), value), "BMP") for value in range(100)]
    (tmp_path / "0.bmp").write_bytes(images[0])
    opened = []
    for changed in (51, 255):
        rows = [*images[:51], encode(PIL.Image.new("L", (8, 8), changed), "BMP"), *images[52:]]
        if values == "bytes or paths":
            rows = [{"bytes": None, "path": "0.bmp"}, *({"bytes": each, "path": None} for each in rows[1:])]
        opened.append(hr.open(pa.table({"image": pa.array(rows)}), root=tmp_path))
        os.utime(opened[-1].where("image", 51)[0], (1, 1))
    first, second, again = (
        load(data, image(), shuffle=False, batch_size=100, cache=RAM) for data in (*opened, opened[1])
    )
    seen = [int(batch["image"][51, 0, 0, 0]) for loader in (first, second, again) for batch in loader]
    assert seen == [51, 255, 255]
    assert [loader.stats().cache.hits for loader in (second, again)] == [0, 100]


def test_a_bad_sample_is_never_kept(places):
    loader = load(places["damaged"], image(), view=FIXED, cache=RAM, max_bad=0.5)
    for _ in range(2):
        list(loader)
        assert loader.stats().bad == 2


def test_what_pillow_decoded_once_comes_from_the_cache(places):
    loader = load(places["points"], points_data.fields(), view=FLIPPED, max_bad=0.5, cache=RAM)
    list(loader)
    assert loader.stats().declined > 0
    list(loader)
    assert loader.stats().declined == 0


def test_a_damaged_entry_is_made_anew(places, tmp_path):
    cache = f"disk:{tmp_path}:40MB"
    loader = load(places["photos"], image(), view=FIXED, cache=cache)
    expected = battery.epochs(load(places["photos"], image(), view=FIXED), 3)
    battery.assert_equal(battery.kept(loader), expected[:5], "first")
    (name,) = os.listdir(tmp_path)
    with open(tmp_path / name, "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(size - 500)
        file.write(b"\xaa" * 10)
    battery.assert_equal(battery.kept(loader), expected[5:10], "damaged")
    stats = loader.stats().cache
    assert (stats.damaged, stats.misses, stats.hits, stats.admitted) == (1, 1, COUNT - 1, 1)
    assert "1 damaged entries made anew" in str(stats)
    battery.assert_equal(battery.kept(loader), expected[10:], "mended")
    assert loader.stats().cache.damaged == 0


def test_a_file_cut_short_under_a_loader(places, tmp_path):
    loader = load(places["photos"], image(), view=FLIPPED, cache=f"disk:{tmp_path}:40MB")
    expected = battery.epochs(load(places["photos"], image(), view=FLIPPED), 3)
    battery.assert_equal(battery.kept(loader), expected[:5], "first")
    (name,) = os.listdir(tmp_path)
    os.truncate(tmp_path / name, 30_000)
    battery.assert_equal(battery.kept(loader), expected[5:10], "cut short")
    assert loader.stats().cache.damaged > 0
    os.truncate(tmp_path / name, 0)
    battery.assert_equal(battery.kept(loader), expected[10:], "emptied")


def test_shrunk_pixels_are_those_of_a_stored_copy(places):
    """Of images resized to a short side of 30, cut where the view cuts the originals: here as a whole."""
    dataset = places["photos"].select(range(5, COUNT, 8))  # PNG, RGB
    got = battery.kept(load(dataset, image(shrink_to=30), view=hr.Resize((20, 26)), batch_size=1, shuffle=False))
    for number, batch in zip(range(5, COUNT, 8), got, strict=True):
        picture = photograph(number, 48 + 5 * (number % 7), 40 + 3 * (number % 11))
        width, height = picture.size
        scale = 30 / min(width, height)
        small = picture.resize((round(width * scale), round(height * scale)), PIL.Image.Resampling.BILINEAR)
        expected = np.asarray(small.resize((26, 20), PIL.Image.Resampling.BILINEAR), np.int16)
        assert np.abs(batch["image"][0].transpose(1, 2, 0).astype(np.int16) - expected).max() <= 2


def test_a_view_is_drawn_as_without_shrinking(places):
    """Sizes, boxes and masks beside a shrunk image stay where they were."""
    fields = points_data.fields()
    shrunk = fields | {"image": hr.Image(filter="nearest", exif=True, shrink_to=20)}
    options = {"view": RANDOM, "max_bad": 0.5}
    plain, other = (battery.kept(load(places["points"], each, **options)) for each in (fields, shrunk))
    for a, b in zip(plain, other, strict=True):
        del a["image"], b["image"]
    battery.assert_equal(other, plain, "beside a shrunk image")


@pytest.mark.parametrize("size", [0, -3, 2.5, True, "512"])
def test_shrink_to_is_checked(size):
    with pytest.raises(UsageError, match="expected shrink_to to be None or the pixels of a short side"):
        hr.Image(shrink_to=size)


OTHER_RANK = """
    import json, sys
    import headrace as hr
    root, cache = sys.argv[1:]
    loader = hr.Loader(root, {"image": hr.Image()}, view=[hr.Resize(24), hr.CenterCrop(24, fill=7)], batch_size=4,
                       shuffle=True, seed=5, threads=2, output="numpy", cache=cache, rank=1, world_size=2)
    list(loader)
    print(loader.stats().cache.admitted)
"""


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", ["ram", "disk"])
@pytest.mark.long
def test_unrelated_processes_share_one_cache(places, tmp_path, kind):
    """What rank 1 of another program has kept, this process finds."""
    root = places["photos"].where("image", 0)[0].split("/ant/")[0]
    cache = RAM if kind == "ram" else f"disk:{tmp_path}:40MB"
    loader = load(root, image(), view=FIXED, cache=cache)
    code, out, error = run_python(OTHER_RANK, root, cache)
    assert (code, out) == (0, f"{COUNT // 2}\n"), error
    list(loader)
    stats = loader.stats().cache
    assert (stats.hits, stats.misses) == (COUNT // 2, COUNT // 2)
    expected = battery.epochs(load(root, image(), view=FIXED), 2)[5:]
    battery.assert_equal(battery.kept(loader), expected, "epoch 1")


def test_a_disk_cache_outlives_its_process(places, tmp_path):
    cache = f"disk:{tmp_path}:40MB"
    list(load(places["photos"], image(), view=FLIPPED, cache=cache))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = load(places["photos"], image(), view=FLIPPED, cache=cache)
    list(again)
    assert again.stats().cache.hits == COUNT


def test_the_cache_goes_with_its_loader(places):
    """At once, though a pass still has what refers to it."""
    gc.disable()
    try:
        loader = load(places["photos"], image(), view=FIXED, cache=RAM)
        list(loader)
        cache = loader._feed.cache
        del loader
        with pytest.raises(ValueError, match="closed"):
            cache.stats()
        again = load(places["photos"], image(), view=FIXED, cache=RAM)
        list(again)
        assert again.stats().cache.hits == 0
    finally:
        gc.enable()


def test_map_workers_get_the_same(places):
    options = {"view": FLIPPED, "map": points_map, "map_workers": 1, "multiprocessing_context": "fork"}
    expected = battery.epochs(load(places["photos"], image(), view=FLIPPED, map=points_map))
    battery.assert_equal(battery.epochs(load(places["photos"], image(), cache=RAM, **options)), expected, "workers")


def points_map(sample, rng):
    return sample | {"draw": np.float32(rng.random())}
