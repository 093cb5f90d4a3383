"""Arguments of `mix` that are wrong, and what the error says of them."""

from __future__ import annotations

import numpy as np
import pytest
from mixture_data import FIELDS, factory, loader_of, write_places

import headrace as hr


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    return write_places(tmp_path_factory.mktemp("use"))


@pytest.fixture(scope="module")
def sources(places):
    return {name: loader_of(places, name) for name in places}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "mix: expected a dict of names to loaders, such as {'a': hr.Loader(…)}, got {}"),
        (None, "mix: expected a dict of names to loaders, such as {'a': hr.Loader(…)}, got None"),
        ({"a": 1}, "mix: expected source 'a' to be an hr.Loader, got int"),
        ({1: None}, "mix: expected names that are texts, got 1"),
        ({"": None}, "mix: expected names that are texts, got ''"),
    ],
)
def test_sources_that_are_none(given, says):
    with pytest.raises(hr.HeadraceError) as caught:
        hr.mix(given)
    assert str(caught.value) == says


WRONG = {
    "weights for nobody": (
        {"weights": {"photos": 1}},
        "weights: expected one for each of the sources 'photos', 'scans'",
    ),
    "weights for a stranger": ({"weights": {"photos": 1, "scans": 1, "no": 1}}, "'scans', got some for unknown 'no'"),
    "no dict": ({"weights": [1, 2]}, "weights: expected a dict of the sources' names to numbers, got [1, 2]"),
    "no weights": ({"weights": {}}, "got none for 'photos', 'scans'"),
    "0": (
        {"weights": {"photos": 1, "scans": 0}},
        "weights['scans']: expected a number above 0, got 0; leave the source",
    ),
    "nan": ({"weights": {"photos": 1, "scans": np.nan}}, "weights['scans']: expected a finite number above 0, got nan"),
    "batches": ({"batches": "both"}, "batches: expected 'one-source' or 'mixed', got 'both'"),
    "epoch": ({"epoch": "longest"}, "epoch: expected 'largest', 'smallest' or a number of steps, got 'longest'"),
    "epoch of 0": ({"epoch": 0}, "epoch: expected an int from 1 to"),
    "epoch of samples": ({"epoch": 1.5}, "epoch: expected an int from 1 to"),
    "seed": ({"seed": -1}, "seed: expected an int from 0 to"),
}


@pytest.mark.parametrize(("options", "says"), WRONG.values(), ids=WRONG)
def test_arguments_that_are_wrong(sources, options, says):
    with pytest.raises(hr.HeadraceError) as caught:
        hr.mix(sources, **options)
    assert says in str(caught.value)


SMALL = hr.RandomResizedCrop(16)
UNALIKE = {
    "rank": ({"rank": 1, "world_size": 2}, "expected the same world size of all sources, got 1 of 'photos' and 2 of"),
    "output": ({"output": "torch"}, "expected the same output of all sources, got numpy of 'photos' and torch of"),
    "fields": (
        {"fields": {"image": hr.Image()}},
        "expected the same fields of all sources, got image, key, label of 'photos' and image of 'scans'; name them",
    ),
    "source": (
        {"fields": FIELDS["scans"] | {"source": hr.Label(source="label")}},
        "source 'scans' has a field 'source', as the mixture calls the number of each sample's source; rename",
    ),
}
UNALIKE_IN_A_BATCH = {
    "batch_size": ({"batch_size": 6}, "expected the same batch_size of all sources, got 12 of 'photos' and 6 of"),
    "view": ({"view": SMALL}, "same size of images (height, width) of all sources, got 24, 24 of 'photos' and 16, 16"),
    "dtype": (
        {"fields": FIELDS["scans"] | {"image": hr.Image()}},
        "expected the same fields of pixels of all sources, got image float32 of 3 channels of 'photos' and image "
        "uint8 of 3 channels of 'scans'",
    ),
    "buckets": ({"buckets": hr.Buckets("orientation")}, "expected source 'scans' without buckets, Budget"),
    "batch_map": ({"batch_map": lambda batch, rng: batch}, "expected source 'scans' without batch_map= with 'mixed'"),
}


@pytest.mark.parametrize("batches", ["one-source", "mixed"])
@pytest.mark.parametrize(("options", "says"), UNALIKE.values(), ids=UNALIKE)
def test_sources_that_do_not_go_together(places, batches, options, says):
    make = factory(places, batches, only={"scans": options})
    with pytest.raises(hr.HeadraceError) as caught:
        make()
    assert says in str(caught.value)


@pytest.mark.parametrize(("options", "says"), UNALIKE_IN_A_BATCH.values(), ids=UNALIKE_IN_A_BATCH)
def test_sources_that_share_no_batch(places, options, says):
    """Batches of one source each may differ in all of this."""
    factory(places, "one-source", only={"scans": options})()
    with pytest.raises(hr.HeadraceError) as caught:
        factory(places, "mixed", only={"scans": options})()
    assert says in str(caught.value)


def test_other_ranks(places):
    with pytest.raises(hr.HeadraceError, match="expected the same rank of all sources, got 0 of 'photos' and 1 of"):
        factory(places, "mixed", world_size=2, only={"photos": {"rank": 0}, "scans": {"rank": 1}})()


@pytest.mark.parametrize("move", [lambda loader: loader.set_epoch(0), lambda loader: loader.seek(0, 1), list])
def test_a_source_that_has_moved(places, move):
    sources = {name: loader_of(places, name) for name in places}
    move(sources["scans"])
    with pytest.raises(hr.HeadraceError, match="expected source 'scans' at its start, got it at epoch"):
        hr.mix(sources)


def test_one_loader_under_two_names(places):
    loader = loader_of(places, "photos")
    with pytest.raises(hr.HeadraceError, match="expected a loader for each source, got one under two names"):
        hr.mix({"a": loader, "b": loader})


def test_an_epoch_that_would_not_end(places):
    with pytest.raises(hr.HeadraceError, match="expected a share of at least 1 in"):
        factory(places, "mixed", weights={"photos": 1, "scans": 1e-12})()


def test_a_source_smaller_than_a_batch_and_one_of_one_sample(places):
    tiny = {"photos": places["photos"], "scans": places["scans"].select([3])}
    for batches in ("one-source", "mixed"):
        mixed = factory(tiny, batches, weights={"photos": 1, "scans": 1}, epoch=6)()
        keys = [key for batch in mixed for key, n in zip(batch["key"], batch["source"], strict=True) if n == 1]
        assert set(keys) == {tiny["scans"].key(0)}
        assert len(keys) == (3 if batches == "one-source" else 36)


# --- what is known only once samples are read ---


def test_samples_of_other_shapes_do_not_stack(places):
    def shrink(sample, rng):
        return sample | {"image": sample["image"][:, :8]}

    mixed = factory(places, "mixed", remainder="wrap", only={"scans": {"map": shrink}})()
    with pytest.raises(hr.HeadraceError) as caught:
        list(mixed)
    assert (
        "field 'image': expected rows of one type and shape of all sources, got float32 [3, 24, 24] of 'photos' and "
        in str(caught.value)
    )


def test_fields_that_only_one_map_makes(places):
    mixed = factory(
        places, "mixed", remainder="wrap", only={"scans": {"map": lambda sample, rng: {**sample, "x": 1}}}
    )()
    with pytest.raises(hr.HeadraceError, match="expected the same fields of all sources, got image, label, key of 'ph"):
        list(mixed)


def test_values_of_different_kinds(places):
    only = {
        "photos": {"map": lambda sample, rng: {**sample, "x": 1.5}},
        "scans": {"map": lambda sample, rng: {**sample, "x": "text"}},
    }
    with pytest.raises(
        hr.HeadraceError, match="field 'x': expected arrays, lists or dicts of them, of one kind in all"
    ):
        list(factory(places, "mixed", remainder="wrap", only=only)())


@pytest.mark.parametrize("batches", ["one-source", "mixed"])
def test_a_map_that_makes_a_field_source(places, batches):
    def name(sample, rng):
        return sample | {"source": 1}

    with pytest.raises(hr.HeadraceError, match="expected batches without 'source'"):
        list(factory(places, batches, remainder="wrap", map=name)())


@pytest.mark.parametrize(
    ("made", "got"),
    [
        (lambda batch, rng: (batch["image"], batch["label"]), "got tuple"),
        (lambda batch, rng: {"mean": batch["image"].mean()}, r"got a dict of \['mean'\]"),
    ],
)
def test_a_batch_map_that_returns_no_rows(places, made, got):
    with pytest.raises(hr.HeadraceError, match=f"expected batch_map= to return a dict of fields.*{got}"):
        list(factory(places, "one-source", batch_map=made)())


def test_a_number_that_a_batch_map_adds_is_no_row(places):
    mixed = factory(places, "one-source", batch_map=lambda batch, rng: {"mean": batch["image"].mean(), **batch})()
    assert all(len(batch["source"]) == len(batch["label"]) for batch in mixed)
