"""`Loader(batch=)`: MixUp and CutMix against a second implementation, what is drawn, and what is refused."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import battery
import numpy as np
import pytest
import torch
from loader_data import write_folder, write_tar
from twin.mixing import Kind, mixed

import headrace as hr
from headrace.augment import draw_mixing
from headrace.device import place
from headrace.errors import UsageError
from headrace.plan import epoch_key

BATCH, SEED = 12, 5
VIEW = hr.RandomResizedCrop((20, 24), flip=0.5)
FIELDS = {"image": hr.Image(), "label": hr.Label()}
FLOATS = {"image": hr.Image(dtype="float32", normalize=hr.IMAGENET), "label": hr.Label()}
MEAN, STD = (
    255 * np.array(each, np.float64).astype(np.float64)[:, None, None] for each in (hr.IMAGENET.mean, hr.IMAGENET.std)
)
CASES = {
    "mixup": (hr.MixUp(alpha=0.2), [Kind("mixup", 0.2)], {}),
    "cutmix": (hr.CutMix(), [Kind("cutmix")], {}),
    "pairs": (hr.MixUp(alpha=3.0, mode="pair", p=0.7), [Kind("mixup", 3.0, 0.7, by_pair=True)], {}),
    "choice": (
        hr.RandomChoice([hr.MixUp(alpha=0.4, label_smoothing=0.1), hr.CutMix(label_smoothing=0.1)], p=[1, 3]),
        [Kind("mixup", 0.4), Kind("cutmix")],
        {"weights": [1, 3], "smoothing": 0.1},
    ),
    "choice of pairs": (
        hr.RandomChoice([hr.MixUp(mode="pair"), hr.CutMix(alpha=0.5, mode="pair")]),
        [Kind("mixup", by_pair=True), Kind("cutmix", 0.5, by_pair=True)],
        {},
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return hr.open(write_folder(tmp_path_factory.mktemp("mixing") / "photos"))


@pytest.fixture
def make(folder):
    def make(mixing=None, fields=FIELDS, data=folder, **overrides):
        given = {"view": VIEW, "batch_size": BATCH, "shuffle": True, "seed": SEED, "threads": 2, "batch": mixing}
        return hr.Loader(data, fields, **(given | overrides))

    return make


@pytest.fixture
def host_as_device(monkeypatch):
    """Fields are placed as for another device, which is then the CPU."""

    def placed(device, output, fields, *, host_floats, decodes):
        placement = place("meta", fields, host_floats=host_floats)
        return replace(placement, device=torch.device("cpu"))

    monkeypatch.setattr("headrace.loader.loader_spec.place_fields", placed)


def expected(plain, case, *, epoch=0):
    """What mixing makes of the batches of an epoch, by the second implementation; a short last batch is not mixed."""
    _, kinds, options = CASES[case]
    batches = []
    for step, batch in enumerate(plain):
        image, label = batch["image"], batch["label"]
        if len(label) < BATCH:
            kinds = [replace(kind, p=0.0) for kind in kinds]
        batches.append(mixed(image, label, kinds, key=epoch_key(SEED, epoch), step=step, classes=4, **options))
    return batches


@pytest.mark.parametrize("case", CASES)
def test_bytes_and_labels_are_those_of_the_twin(make, case):
    plain = battery.epochs(make(), 2)
    got = battery.epochs(make(CASES[case][0]), 2)
    half = len(plain) // 2
    twins = expected(plain[:half], case) + expected(plain[half:], case, epoch=1)
    for batch, (image, label) in zip(got, twins, strict=True):
        assert batch["image"].dtype == np.uint8
        np.testing.assert_array_equal(batch["image"], np.floor(image + 0.5))
        assert batch["label"].dtype == np.float32
        np.testing.assert_allclose(batch["label"], label, atol=1e-7)


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_floats_are_normalised_once_from_exact_blends(make, dtype, channels_last):
    """`(blend - 255 mean) / (255 std)` in float32, where blends of bytes are exact."""
    fields = FIELDS | {"image": hr.Image(dtype=dtype, normalize=hr.IMAGENET, channels_last=channels_last)}
    plain = battery.kept(make())
    for case in ("choice of pairs", "mixup"):
        for batch, (image, _) in zip(make(CASES[case][0], fields), expected(plain, case), strict=True):
            value = (image.astype(np.float32) - MEAN.astype(np.float32)) / STD.astype(np.float32)
            assert torch.equal(batch["image"], torch.from_numpy(value).to(batch["image"].dtype))
            layout = torch.channels_last if channels_last else torch.contiguous_format
            assert batch["image"].is_contiguous(memory_format=layout)


def test_a_short_last_batch_is_as_without_but_for_its_labels(make):
    for fields in (FIELDS, FLOATS):
        plain, got = (battery.kept(make(mixing, fields))[-1] for mixing in (None, hr.MixUp(label_smoothing=0.2)))
        assert len(got["label"]) == 40 % BATCH
        np.testing.assert_array_equal(got["image"], plain["image"])
        np.testing.assert_allclose(got["label"], 0.8 * np.eye(4)[plain["label"]] + 0.05, atol=1e-7)


def test_a_batch_that_wraps_is_mixed(make):
    last = battery.kept(make(hr.MixUp(), remainder="wrap"))[-1]
    assert len(last["label"]) == BATCH
    assert (last["label"].max(axis=1) < 1).any()


@pytest.mark.parametrize("case", CASES)
def test_on_a_device_bytes_are_the_same_and_floats_but_for_rounding(make, host_as_device, case):
    for fields, most in ((FIELDS, 0.0), (FLOATS, 2.0**-20)):
        there, here = (battery.kept(make(CASES[case][0], fields, device=device)) for device in ("cuda", None))
        for mine, theirs in zip(there, here, strict=True):
            assert list(mine) == list(theirs)
            np.testing.assert_allclose(mine["image"].astype(float), theirs["image"].astype(float), rtol=0, atol=most)
            np.testing.assert_array_equal(mine["label"], theirs["label"])


def test_on_a_device_with_batch_map_the_host_mixes(make, host_as_device):
    def brightest(batch, rng):
        return batch | {"brightest": batch["image"].amax((1, 2, 3))}

    given = {"mixing": hr.MixUp(), "fields": FLOATS, "batch_map": brightest}
    there, here = (battery.kept(make(**given, device=device)) for device in ("cuda", None))
    battery.assert_equal(there, here, "batch_map")


# --- beside map, batch_map and bad samples ---


def halved(sample, rng):
    return sample | {"image": sample["image"].to(torch.float32) / 2, "number": sample["label"] * 2}


def test_runs_between_map_and_batch_map(make):
    seen = []

    def look(batch, rng):
        seen.append(batch["label"].dtype)
        return batch

    plain = battery.kept(make(map=halved))
    got = battery.kept(make(hr.MixUp(alpha=0.2), map=halved, batch_map=look))
    assert set(seen) == {torch.float32}
    for batch, before, (image, _) in zip(got, plain, expected(plain, "mixup"), strict=True):
        np.testing.assert_allclose(batch["image"], image, atol=1e-4)
        np.testing.assert_array_equal(batch["number"], before["number"])


@pytest.mark.parametrize("dtype", ["uint16", "int64", "float16", "float64", "bfloat16"])
@pytest.mark.parametrize("case", ["mixup", "cutmix"])
def test_whatever_type_map_returns_is_mixed_in_it(make, case, dtype):
    def cast(sample, rng):
        return sample | {"image": sample["image"].to(getattr(torch, dtype))}

    plain = battery.kept(make())
    for batch, (image, _) in zip(make(CASES[case][0], map=cast), expected(plain, case), strict=True):
        kind = batch["image"].dtype
        assert kind == getattr(torch, dtype)
        exact = torch.from_numpy(image if kind.is_floating_point else np.floor(image + 0.5)).to(kind)
        assert torch.equal(batch["image"].double(), exact.double())


def test_map_workers_change_nothing(make):
    by_workers, by_threads = (
        battery.kept(make(CASES["choice"][0], map=halved, map_workers=workers)) for workers in (2, 0)
    )
    battery.assert_equal(by_workers, by_threads, "map_workers")


def test_a_bad_sample_is_replaced_before_it_is_mixed(make, tmp_path):
    damaged = write_folder(tmp_path / "photos")
    for path in sorted(damaged.rglob("*.*"))[:3]:
        path.write_bytes(b"damaged")
    data = hr.open(damaged)
    plain = battery.kept(make(data=data, max_bad=1.0))
    got = battery.kept(make(CASES["mixup"][0], data=data, max_bad=1.0))
    for batch, (image, label) in zip(got, expected(plain, "mixup"), strict=True):
        np.testing.assert_array_equal(batch["image"], np.floor(image + 0.5))
        np.testing.assert_allclose(batch["label"], label, atol=1e-7)


def test_numpy_output_is_the_same(make):
    for fields in (FIELDS, FLOATS):
        arrays, tensors = (battery.kept(make(CASES["choice"][0], fields, output=each)) for each in ("numpy", "torch"))
        battery.assert_equal(arrays, tensors, "output")


def test_floats_with_an_erasure_are_mixed_as_they_are(make):
    """The erasure writes normalised values, which bytes cannot stand for."""
    erased = FLOATS | {"image": replace(FLOATS["image"], augment=hr.RandomErasing(p=1.0, value=0.5))}
    plain = battery.kept(make(None, erased))
    for batch, (image, _) in zip(make(CASES["mixup"][0], erased), expected(plain, "mixup"), strict=True):
        np.testing.assert_allclose(batch["image"], image, atol=1e-6)


def test_statistics_name_the_stage(make):
    loader = make(hr.MixUp())
    list(loader)
    assert loader.stats().stages["mixing"].items == 40


# --- what is drawn ---


def lambdas(mixing, count, *, size=(1000, 1000)):
    """A lambda of each of many pairs, one half from each of two steps."""
    drawn = [draw_mixing(mixing, key=7, step=step, first_pair=9, pairs=count // 2, size=size) for step in (0, 1 << 33)]
    return np.concatenate([each.shares for each in drawn])


def arcsine(x):
    return 2 / math.pi * np.arcsin(np.sqrt(x))


@pytest.mark.parametrize(
    ("alpha", "cumulative"), [(0.5, arcsine), (1.0, lambda x: x), (2.0, lambda x: 3 * x**2 - 2 * x**3)]
)
def test_lambda_has_the_beta_distribution(alpha, cumulative):
    found = np.sort(lambdas(hr.MixUp(alpha=alpha, mode="pair"), 8000))
    ranks = np.arange(len(found)) / len(found)
    assert np.abs(cumulative(found) - ranks).max() < 1.95 / math.sqrt(len(found)), "Kolmogorov-Smirnov, p = 0.001"


@pytest.mark.one_in(2)
@pytest.mark.parametrize("alpha", [0.01, 0.2, 0.8, 1.3, 30.0])
def test_lambda_has_the_distribution_of_numpys_beta(alpha):
    found = lambdas(hr.MixUp(alpha=alpha, mode="pair"), 6000)
    drawn = np.round(np.random.default_rng(1).beta(alpha, alpha, 60000) * 32768) / 32768
    places = np.sort(np.concatenate([found, drawn]))
    apart = [np.searchsorted(np.sort(each), places, side="right") / len(each) for each in (found, drawn)]
    assert np.abs(apart[0] - apart[1]).max() < 1.95 * math.sqrt(1 / len(found) + 1 / len(drawn))


def test_boxes_have_their_area_where_they_do_not_cross_the_edge():
    mixing, size = hr.CutMix(mode="pair"), (300, 200)
    drawn = draw_mixing(mixing, key=3, step=0, first_pair=0, pairs=4000, size=size)
    _, left, top, right, bottom = drawn.pairs.T
    np.testing.assert_allclose(drawn.shares, 1 - (right - left) * (bottom - top) / math.prod(size))
    inner = (left > 0) & (top > 0) & (right < size[1]) & (bottom < size[0])
    aspect = (right - left)[inner] / np.maximum(1, (bottom - top)[inner])
    assert np.median(np.abs(aspect - size[1] / size[0])) < 0.02
    centres = ((left + right) // 2)[inner & (right - left < 20)]
    assert abs(centres.mean() - size[1] / 2) < 12


def test_probability_and_choice_come_as_often_as_asked():
    mixing = hr.RandomChoice([hr.MixUp(mode="pair", p=0.5), hr.CutMix(mode="pair", p=0.5)], p=[0.2, 0.8])
    drawn = draw_mixing(mixing, key=1, step=4, first_pair=0, pairs=6000, size=(500, 500))
    blends, boxes = drawn.pairs[:, 0] != 32768, drawn.pairs[:, 3] > 0
    assert abs(blends.mean() - 0.1) < 0.015
    assert abs(boxes.mean() - 0.4) < 0.025
    assert not (blends & boxes).any()


def test_draws_of_a_part_are_those_of_the_whole():
    mixing = CASES["choice of pairs"][0]
    whole = draw_mixing(mixing, key=5, step=2, first_pair=0, pairs=8, size=(30, 30))
    part = draw_mixing(mixing, key=5, step=2, first_pair=6, pairs=2, size=(30, 30))
    np.testing.assert_array_equal(whole.pairs[6:], part.pairs)
    other = draw_mixing(mixing, key=5, step=3, first_pair=0, pairs=8, size=(30, 30))
    assert not np.array_equal(whole.pairs, other.pairs)


# --- what is refused ---

BAD_ARGUMENTS = {
    "alpha above 0, got 0": lambda: hr.MixUp(alpha=0),
    "alpha .* got nan": lambda: hr.CutMix(alpha=float("nan")),
    "num_classes .* got 0": lambda: hr.MixUp(num_classes=0),
    "mode .* 'elem'": lambda: hr.MixUp(mode="elem"),
    "label_smoothing .* got 1": lambda: hr.CutMix(label_smoothing=1),
    "p to be a probability .* got 1.5": lambda: hr.MixUp(p=1.5),
    "labels .* got 3": lambda: hr.MixUp(labels=3),
    "field .* got None": lambda: hr.MixUp(field=None),
}


@pytest.mark.parametrize("says", BAD_ARGUMENTS)
def test_refuses_arguments(says):
    with pytest.raises(UsageError, match=says.replace("alpha above", "alpha to be a number above")):
        BAD_ARGUMENTS[says]()


BAD_USE = {
    "no labels": ({"fields": {"image": hr.Image()}}, "expected labels='label' to name a Label field"),
    "other labels": ({"mixing": hr.MixUp(labels="image")}, "to name a Label field of classes, got Image"),
    "no image": ({"mixing": hr.CutMix(field="picture")}, r"the name of an Image field, one of \['image'\]"),
    "odd": ({"batch_size": 9}, "batch_size: expected an even number"),
    "odd by rank": ({"batch_size": 3, "rank": 0, "world_size": 4}, "even number of samples per rank"),
    "too few classes": ({"mixing": hr.MixUp(num_classes=3)}, "at least the 4 classes"),
    "no mixing": ({"mixing": hr.Resize(24)}, "batch: expected hr.MixUp"),
    "two fields": (
        {"mixing": hr.RandomChoice([hr.MixUp(), hr.CutMix(field="other")])},
        "expected one field for all of a RandomChoice",
    ),
    "copies": ({"fields": FIELDS | {"image": hr.Image(copies=2)}}, "one window a sample .* got 2 copies"),
    "masks": ({"fields": FIELDS | {"other": hr.Image(source="image")}}, "no other field of pixels"),
    "budget": (
        {
            "batch_size": hr.Budget(pixels=6000),
            "view": hr.RandomScale((16, 20)),
            "buckets": hr.Buckets("aspect", count=2),
        },
        "rank_multiple=2",
    ),
}


@pytest.mark.parametrize("case", BAD_USE)
def test_refuses_what_cannot_be_mixed(make, case):
    options, says = BAD_USE[case]
    with pytest.raises(UsageError, match=says):
        make(**({"mixing": hr.MixUp()} | options))


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    return hr.open(write_tar(tmp_path_factory.mktemp("mixing") / "photos.tar"))


def test_refuses_labels_that_are_no_classes(make, archive):
    scores = hr.open({"image": [b""] * 4, "label": np.linspace(0, 1, 4)})
    with pytest.raises(UsageError, match="whole numbers from 0, got float64"):
        make(hr.MixUp(), data=scores)
    fields = {"image": hr.Image(source="jpg"), "label": hr.Label(source="cls")}
    with pytest.raises(UsageError, match="expected num_classes= with field 'label'"):
        make(hr.MixUp(), fields=fields, data=archive)


def test_names_the_sample_whose_label_is_no_class(make, folder):
    numbers = hr.open({"image": [folder[i]["image"] for i in range(40)], "label": np.arange(40)})
    with pytest.raises(UsageError, match=r"a class from 0 to 38, got 39 of sample '39', epoch 0, position") as raised:
        list(make(hr.MixUp(num_classes=39), data=numbers))
    assert re.search("pass a greater num_classes", str(raised.value))


def test_refuses_what_map_makes_unfit(make):
    for change, says in (
        (lambda sample: {"label": sample["label"]}, "return field 'image'"),
        (lambda sample: sample | {"label": 0.5}, r"classes, whole numbers \[N\], got float64 \[12\]"),
        (lambda sample: sample | {"image": sample["image"][0]}, r"numbers \[N, C, H, W\].* got uint8 \[12, 20, 24\]"),
    ):
        with pytest.raises(UsageError, match=says):
            next(iter(make(hr.MixUp(), map=lambda sample, rng, change=change: change(sample))))


def test_mixtures_mix_batches_of_one_source_and_refuse_joined_ones(make, folder):
    def loaders():
        return {
            name: make(hr.MixUp(), data=folder.select(rows)) for name, rows in (("a", range(24)), ("b", range(20, 40)))
        }

    with pytest.raises(UsageError, match="without batch= with 'mixed'"):
        hr.mix(loaders(), weights={"a": 1, "b": 1}, batches="mixed")
    mixed_batches = battery.kept(hr.mix(loaders(), weights={"a": 1, "b": 1}, batches="one-source"))
    alone = battery.kept(loaders()["a"])
    of_a = [batch for batch in mixed_batches if batch["source"][0] == 0]
    np.testing.assert_array_equal(of_a[0]["image"], alone[0]["image"])
    np.testing.assert_array_equal(of_a[0]["label"], alone[0]["label"])
