"""Loaders with buckets, scales and budgets over real images: battery, shapes, pixels, replacements, refused states."""

from __future__ import annotations

import json
import warnings

import battery
import dense_data
import numpy as np
import PIL.Image
import pytest
from loader_data import label_of, photograph, write_folder
from twin.views import short_side_size

import headrace as hr

SCALES = hr.RandomScale((16, 20, 24), long_max=36, multiple_of=4, flip=0.5, fill=9)
BY_ASPECT = hr.Buckets("aspect", count=3)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    root = tmp_path_factory.mktemp("buckets")
    damaged = write_folder(root / "damaged")
    for number, kept in ((3, 200), (17, 200), (25, 10), (31, 0)):  # two whose size can be read, two of which not
        path = next(damaged.glob(f"*/{number:04}.*"))
        path.write_bytes(path.read_bytes()[:kept])
    return {"whole": hr.open(write_folder(root / "photos")), "damaged": hr.open(damaged)}


def by_class(sample):
    return sample["label"]


def jitter(sample, rng):
    return sample | {"jitter": rng.random(2)}


CASES = {
    "scales": {"view": SCALES},
    "aspect, scales": {"view": SCALES, "buckets": BY_ASPECT},
    "aspect, scales, budget": {"view": SCALES, "buckets": BY_ASPECT, "pixels": 6000},
    "aspect, scales, budget, wrap": {"view": SCALES, "buckets": BY_ASPECT, "pixels": 6000, "remainder": "wrap"},
    "orientation, crops": {"view": [SCALES, hr.RandomCrop(14)], "buckets": hr.Buckets("orientation")},
    "size, unshuffled": {"view": None, "buckets": hr.Buckets("size"), "shuffle": False},
    "bytes, budget": {"view": hr.Resize((20, 20)), "buckets": hr.Buckets("length", source="image"), "bytes": 30_000},
    "classes, drop": {"view": hr.Resize(20), "buckets": hr.Buckets(by_class), "remainder": "drop", "batch_size": 4},
    "aspect, scales, map": {"view": SCALES, "buckets": BY_ASPECT, "map": jitter, "remainder": "wrap"},
    "bad samples": {"view": SCALES, "buckets": BY_ASPECT, "place": "damaged", "max_bad": 0.5},
}


def factory(places, *, place="whole", pixels=None, bytes=None, batch_size=battery.GLOBAL_BATCH, **options):
    """`pixels` and `bytes` are the budget of all ranks; the battery's batch sizes only tell the world size then."""

    def make(**overrides):
        given = {"shuffle": True, "seed": 5, "threads": 2, "output": "numpy"} | options | overrides
        if pixels is not None or bytes is not None:
            world_size = given.get("world_size", 1)
            amounts = {"pixels": pixels, "bytes": bytes}
            shared = {name: amount // world_size for name, amount in amounts.items() if amount is not None}
            given["batch_size"] = hr.Budget(**shared, rank_multiple=4)
        else:
            given.setdefault("batch_size", batch_size)
        fields = {"image": hr.Image(), "label": hr.Label(), "key": hr.Raw(source="__key__")}
        return hr.Loader(places[place], fields, **given)

    make.global_batch = batch_size
    return make


@battery.over(CASES)
@pytest.mark.one_in(3)
def test_battery(places, case, check):
    check(factory(places, **CASES[case]))


@pytest.mark.one_in(4)
@pytest.mark.parametrize("case", [name for name in CASES if name != "classes, drop"])
def test_an_epoch_has_every_sample_and_every_rank_one_shape(places, case):
    for world_size in (1, 2, 4):
        loaders = battery.loaders_of(factory(places, **CASES[case]), battery.GLOBAL_BATCH, world_size)
        ranks = [battery.kept(loader) for loader in loaders]
        assert {len(batches) for batches in ranks} == {len(loaders[0])}
        for parts in zip(*ranks, strict=True):
            assert len({part["image"].shape[1:] for part in parts}) == 1
        keys = [key for batches in ranks for batch in batches for key in batch["key"]]
        stats = [loader.stats() for loader in loaders]
        assert len(keys) == 40 + stats[0].repeated
        assert len(set(keys)) >= 40 - sum(each.replaced for each in stats)


def test_pixels_are_those_of_a_resize_and_a_centred_crop(places):
    view = hr.RandomScale((16, 20, 24), long_max=36, multiple_of=4, fill=9)
    loader = factory(places, view=view, buckets=BY_ASPECT)()
    positions = {places["whole"].key(sample): sample for sample in range(40)}
    seen = set()
    for batch in battery.kept(loader):
        height, width = batch["image"].shape[2:]
        assert height % 4 == width % 4 == 0
        found = {}
        for side in (16, 20, 24):
            alone = hr.Loader(
                places["whole"].select([positions[key] for key in batch["key"]]),
                {"image": hr.Image()},
                view=[hr.Resize(side, max_size=36), hr.CenterCrop((height, width), fill=9)],
                batch_size=len(batch["key"]),
                output="numpy",
            )
            found[side] = np.array_equal(next(iter(alone))["image"], batch["image"])
        assert sum(found.values()) == 1, "one scale for all"
        seen |= {side for side, same in found.items() if same}
        assert not (batch["image"][:, :, 0] == 9).all() or not (batch["image"][:, :, -4] == 9).all(), "no less would do"
    assert len(seen) > 1


def test_each_field_is_filled_up_in_its_own_way(tmp_path):
    """Masks with `ignore`, depth with `invalid` and not valid, all over the same pixels."""
    dataset = dense_data.write_tar(tmp_path)
    numbers = {dataset.key(sample): sample for sample in range(len(dataset))}
    fields = {
        "rgb": hr.Image(),
        "mask": hr.Mask(ignore=200),
        "depth": hr.Depth(1 / 1000, invalid=-1),
        "key": hr.Raw(source="__key__"),
    }
    view = hr.RandomScale((16, 24), multiple_of=16, fill=9)
    padded = 0
    for batch in hr.Loader(dataset, fields, view=view, batch_size=5, shuffle=True, output="numpy"):
        height, width = batch["rgb"].shape[2:]
        side = 16 if height == 16 else 24
        for row, key in enumerate(batch["key"]):
            source = dense_data.size_of(numbers[key])
            w, h = short_side_size(source[1], source[0], side, 0)
            outside = np.ones((height, width), bool)
            top, left = (height - h) // 2, (width - w) // 2
            outside[top : top + h, left : left + w] = False
            padded += outside.sum()
            assert (batch["rgb"][row][:, outside] == 9).all()
            assert (batch["mask"][row][outside] == 200).all()
            assert (batch["depth"][row, 0][outside] == -1).all()
            assert not batch["depth_valid"][row, 0][outside].any()
            assert not (batch["mask"][row][~outside] == 200).any()
            assert batch["depth_valid"][row, 0][~outside].any()
    assert padded


def test_no_rank_has_more_pixels_than_its_budget(places):
    for world_size in (1, 2, 4):
        make = factory(places, **CASES["aspect, scales, budget"])
        for loader in battery.loaders_of(make, battery.GLOBAL_BATCH, world_size):
            counts = [batch["image"][:, 0].size for batch in battery.kept(loader)]
            assert max(counts) <= 6000 // world_size
            assert sorted(counts)[len(counts) // 2] > 3000 // world_size


@pytest.mark.parametrize("world_size", [1, 2])
def test_bad_samples_are_replaced_from_their_own_bucket(places, world_size):
    make = factory(places, place="damaged", view=hr.Resize(20), buckets=hr.Buckets(by_class), batch_size=4, max_bad=1.0)
    loaders = battery.loaders_of(make, 4, world_size)
    ranks = [battery.kept(loader) for loader in loaders]
    for parts in zip(*ranks, strict=True):
        assert len({int(label) for part in parts for label in part["label"]}) == 1
    assert sum(loader.stats().replaced for loader in loaders) >= 4
    labels = np.concatenate([batch["label"] for batches in ranks for batch in batches])
    assert np.bincount(labels).tolist() == np.bincount([label_of(number) for number in range(40)]).tolist()


def test_a_batch_of_one_whose_size_cannot_be_read_has_that_of_its_replacement(places):
    loader = factory(places, place="damaged", view=hr.Resize(20), buckets=BY_ASPECT, batch_size=1, max_bad=1.0)()
    batches = battery.kept(loader)
    assert loader.stats().replaced >= 4
    for batch in batches:
        assert min(batch["image"].shape[2:]) == 20
        assert not (batch["image"][:, :, 0] == 0).all()
        assert not (batch["image"][:, :, -1] == 0).all()


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_bad_sample_that_is_alone_in_its_bucket_is_replaced_from_another(tmp_path, world_size):
    for number in range(9):
        PIL.Image.fromarray(np.full((20, 30), number + 1, np.uint8)).save(tmp_path / f"{number}.png")
    rare = tmp_path / "9.png"
    PIL.Image.fromarray(np.random.default_rng(1).integers(1, 9, (40, 25), np.uint8)).save(rare)
    rare.write_bytes(rare.read_bytes()[:400])  # its size can be read
    fields = {"image": hr.Image(mode="L"), "key": hr.Raw(source="__key__")}
    shared = {"buckets": hr.Buckets("size"), "batch_size": 2 // world_size, "shuffle": True, "output": "numpy"}
    data = hr.open({"image": f"{tmp_path}/*.png"})
    loaders = [
        hr.Loader(data, fields, rank=rank, world_size=world_size, max_bad=1.0, **shared) for rank in range(world_size)
    ]
    ranks = [battery.kept(loader) for loader in loaders]
    assert sum(loader.stats().bad for loader in loaders) == 1
    shapes = [[batch["image"].shape[1:] for batch in batches] for batches in ranks]
    assert all(each == shapes[0] for each in shapes)
    assert sorted(set(shapes[0])) == [(1, 20, 30), (1, 40, 25)]
    assert sum(len(batch["key"]) for batches in ranks for batch in batches) == 10


def test_shapes_follow_from_depth_that_a_library_reads(tmp_path):
    rng = np.random.default_rng(1)
    sizes = [(20 + number, 31 - number) for number in range(6)]
    for number, size in enumerate(sizes):
        np.save(tmp_path / f"{number}.npy", rng.uniform(1, 9, size).astype(np.float32))
    data = hr.open({"depth": f"{tmp_path}/*.npy"})
    loader = hr.Loader(data, {"depth": hr.Depth()}, buckets=hr.Buckets("size"), batch_size=4, output="numpy")
    assert sorted(batch["depth"].shape[2:] for batch in loader) == sizes


def test_a_batch_whose_bucket_has_no_size_has_that_of_a_replacement_from_another(tmp_path):
    for number in range(4):
        PIL.Image.new("L", (30, 20), 7).save(tmp_path / f"{number}.png")
    (tmp_path / "3.png").write_bytes(b"")
    loader = hr.Loader(
        hr.open({"image": f"{tmp_path}/*.png"}),
        {"image": hr.Image(mode="L")},
        buckets=hr.Buckets(lambda sample: sample["__key__"] == "3"),
        batch_size=1,
        output="numpy",
        max_bad=1.0,
    )
    assert [(batch["image"].shape, batch["image"].min()) for batch in loader] == [((1, 1, 20, 30), 7)] * 4


@pytest.mark.parametrize("said", [(30, 20), (20, 30)], ids=["wrong", "right"])
def test_columns_that_state_other_sizes_are_told_of_once(tmp_path, said):
    lines = []
    for number in range(6):
        PIL.Image.new("RGB", (30, 20), (number, 9, 9)).save(tmp_path / f"{number}.png")
        lines.append({"image": f"{number}.png", "height": said[0], "width": said[1]})
    (tmp_path / "list.jsonl").write_text("\n".join(map(json.dumps, lines)))
    data = hr.open(tmp_path / "list.jsonl", root=tmp_path)
    shapes = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for exif in (True, False):
            fields = {"image": hr.Image(exif=exif)}
            loader = hr.Loader(data, fields, buckets=hr.Buckets("size"), batch_size=2, output="numpy")
            shapes[exif] = {batch["image"].shape[2:] for batch in loader}
    assert shapes == {True: {(20, 30)}, False: {said}}, "a few headers are compared where files may be turned"
    texts = [str(each.message) for each in caught]
    if said == (20, 30):
        assert not texts
    else:
        (text,) = texts
        assert "expected sample '0.png' to be 30 x 20 (height x width)" in text
        assert "got 20 x 30; it is cut or filled up to the shape planned" in text


def test_sizes_of_which_none_can_be_read_are_refused(tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    data = hr.open({"image": f"{tmp_path}/*.png"})
    for arguments in (
        {"view": SCALES, "batch_size": 2, "shuffle": True},
        {"batch_size": hr.Budget(pixels=9999)},
        {"buckets": hr.Buckets(len), "batch_size": 2},
    ):
        with pytest.raises(hr.HeadraceError, match=r"size of at least one image of column 'image' .* ds\[0\], name"):
            hr.Loader(data, {"image": hr.Image()}, output="numpy", **arguments)
    hr.Loader(data, {"image": hr.Image()}, buckets=hr.Buckets(len), view=hr.Resize((8, 8)), batch_size=2)


def test_a_state_of_other_buckets_is_refused(places):
    make = factory(places, **CASES["aspect, scales"])
    state = battery.state_after(make(), 2)
    assert len(str(state)) < 700
    for overrides, text in [
        (
            {"buckets": hr.Buckets("aspect", count=4)},
            "by 'buckets aspect count=4 .*got 'buckets aspect count=3 ",
        ),
        (
            {"buckets": None},
            r"batches by 'scales 16 20 24 long_max 36' .*; pass the order=, the buckets=, the RandomScale",
        ),
        ({"buckets": None, "view": hr.Resize((8, 8))}, "batches by 'batch_size alone' as in this loader"),
        ({"view": hr.RandomScale((16, 24), long_max=36)}, "scales 16 24 long_max 36"),
        ({"batch_size": 6}, "pass batch_size=12"),
        ({"seed": 6}, "pass seed=5"),
    ]:
        with pytest.raises(hr.HeadraceError, match=text):
            make(**overrides).load_state_dict(state)
    with pytest.raises(hr.HeadraceError, match="got 'batch_size alone' in the state"):
        make().load_state_dict(battery.state_after(make(buckets=None, view=hr.Resize((8, 8))), 2))


def test_a_budget_resumes_where_all_ranks_have_as_much_and_says_so_where_not(places):
    def loader(**budget):
        return hr.Loader(
            places["whole"],
            view=SCALES,
            buckets=BY_ASPECT,
            batch_size=hr.Budget(**budget),
            shuffle=True,
            output="numpy",
            rank=0,
            world_size=2,
        )

    state = battery.state_after(loader(pixels=3000, rank_multiple=4), 2)
    loader(pixels=3000, rank_multiple=4).load_state_dict(state)
    for other in ({"pixels": 3000}, {"pixels": 4000, "rank_multiple": 4}):
        with pytest.raises(hr.HeadraceError, match=r"6000 pixels over all ranks, rank_multiple 4 .* name rank_"):
            loader(**other).load_state_dict(state)


def test_workers_of_map_take_batches_of_every_shape(places):
    make = factory(places, **CASES["aspect, scales, map"])
    battery.assert_equal(battery.kept(make(map_workers=2)), battery.kept(make()), "map_workers=2")


def test_images_count_as_they_are_turned_and_whoever_decodes_them(tmp_path):
    """Two formats, and a JPEG that EXIF turns upright: three landscapes as they lie, but one of them is a portrait."""
    turned = PIL.Image.Exif()
    turned[0x0112] = 6
    for number, (name, options) in enumerate([("a.jpg", {"exif": turned}), ("b.webp", {}), ("c.png", {})]):
        photograph(number, 60, 40).save(tmp_path / name, **options)
    for exif, shapes in ((True, {(30, 20), (20, 30)}), (False, {(20, 30)})):
        loader = hr.Loader(
            hr.open(tmp_path),
            {"image": hr.Image(exif=exif)},
            view=hr.Resize(20),
            buckets=hr.Buckets("orientation"),
            batch_size=3,
            output="numpy",
        )
        batches = battery.kept(loader)
        assert {batch["image"].shape[2:] for batch in batches} == shapes
        assert not any((batch["image"].max(axis=1) == 0).all(axis=(1, 2)).any() for batch in batches)


def test_map_needs_a_sample_for_every_rank(places):
    arguments = {"view": hr.Resize((8, 8)), "batch_size": 3, "rank": 0, "world_size": 4, "output": "numpy"}
    with pytest.raises(hr.HeadraceError, match=r"for each of the 4 ranks in every batch .* got 120 parts without"):
        hr.Loader(places["whole"], buckets=hr.Buckets("size"), map=lambda sample, rng: sample, **arguments)


def test_the_printed_loader_says_what_it_cuts(places):
    assert "batches of 12 of image" in repr(factory(places, **CASES["aspect, scales"])())
    loader = factory(places, **CASES["aspect, scales, budget"])()
    assert f"batches of about {loader.batch_size} of image" in repr(loader)
    assert loader.batch_size % 4 == 0
