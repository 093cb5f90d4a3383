"""`on_error="skip"`: what is left out, what is counted, and where a resume goes on."""

from __future__ import annotations

import json

import battery
import numpy as np
import pytest
from bad_loads import fails, folder_of, load, says
from loader_data import COUNT, write_folder, write_tar

import headrace as hr
from headrace.errors import TooManyBadSamplesError, UsageError

BATCH = 4
BAD = (3, 12, 13, 14, 15, 36, 37, 38, 39)
"""Of these, unshuffled, one of the first batch, and all of the fourth and the last."""


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Photographs, and the same with some of them cut short."""
    root = tmp_path_factory.mktemp("skip")
    good, damaged = write_folder(root / "good"), write_folder(root / "damaged")
    for number in BAD:
        path = next(damaged.glob(f"*/{number:04}.*"))
        path.write_bytes(path.read_bytes()[:150])
    return hr.open(good), hr.open(damaged)


def skipping(dataset, **options):
    given = {"view": hr.RandomResizedCrop(20, flip=0.5), "batch_size": BATCH, "on_error": "skip", "max_bad": 0.5}
    return load(dataset, **(given | options))


def doubled(sample, rng):
    return sample | {"label": sample["label"] * 2, "drawn": rng.random(2)}


def good_rows(loader):
    """For each step of an epoch, which rows of its batch are good."""
    plan = loader._feed.recipe.plan
    return [~np.isin(plan.batch(0, step).samples, BAD) for step in range(len(loader))]


ORDERS = {"in order": {}, "shuffled": {"shuffle": True, "seed": 4}, "torch": {"output": "torch", "shuffle": True}}
MAPS = {"no map": {}, "threads": {"map": doubled}, "workers": {"map": doubled, "map_workers": 2}}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("map", MAPS.values(), ids=MAPS)
@pytest.mark.one_in(12)
def test_what_is_left_is_what_it_would_have_been(places, order, map):
    """The other samples keep their views and their batches, and nothing comes in place of those left out."""
    good, damaged = (skipping(dataset, **order, **map) for dataset in places)
    whole, rows = battery.kept(good), good_rows(damaged)
    expected = [
        {name: values[kept] for name, values in batch.items()}
        for batch, kept in zip(whole, rows, strict=True)
        if kept.any()
    ]
    battery.assert_equal(battery.kept(damaged), expected, "what is left")


def test_undecoded_fields_are_left_out_with_their_sample(tmp_path):
    path = write_tar(tmp_path / "a.tar")
    tar = path.read_bytes()
    at = tar.index(b"0002.") + 512
    path.write_bytes(tar[:at] + b"x" * 100 + tar[at + 100 :])
    fields = {"image": hr.Image(), "label": hr.Label(), "text": hr.Raw()}
    first = next(iter(skipping(hr.open(path), fields=fields, shuffle=False)))
    assert first["text"] == [b"number 0", b"number 1", b"number 3"]
    assert first["image"].shape == (3, 3, 20, 20)


def test_what_is_skipped_is_counted_and_written_down(places, tmp_path):
    quarantine = tmp_path / "bad.jsonl"
    loader = skipping(places[1], quarantine=quarantine)
    assert len(list(loader)) == len(loader) - 2
    stats = loader.stats()
    assert (stats.skipped, stats.bad, stats.replaced) == (len(BAD), len(BAD), 0)
    assert (stats.batches, stats.samples) == (COUNT / BATCH - 2, COUNT - len(BAD))
    assert f"{len(BAD)} bad samples, 0 replacements, {len(BAD)} skipped" in str(stats)
    lines = [json.loads(line) for line in quarantine.read_text().splitlines()]
    assert sorted(line["position"] for line in lines) == list(BAD)


@pytest.mark.parametrize("map_workers", [0, pytest.param(2, marks=pytest.mark.long)])
def test_resume(places, map_workers):
    """A state after any batch goes on with the next that comes, whatever was left out between them."""

    def make(**overrides):
        return skipping(places[1], shuffle=True, seed=4, map=doubled, map_workers=map_workers, **overrides)

    expected = battery.epochs(make())
    batches = sum(rows.any() for rows in good_rows(make()))
    for taken in range(batches + 1):
        resumed = make()
        resumed.load_state_dict(battery.state_after(make(), taken))
        got = battery.kept(resumed) + (battery.kept(resumed) if taken < batches else [])
        battery.assert_equal(got, expected[taken:], f"resumed after {taken}")


def test_a_pass_whose_last_batch_is_skipped_goes_on_to_the_next_epoch(places):
    loader = skipping(places[1])
    assert len(list(loader)) == len(loader) - 2
    assert loader.epoch == 1
    assert loader.state_dict()["samples"] == 0


def test_a_state_with_nothing_but_skipped_batches_before_it(places):
    """Saved before the consumer heard that none comes any more: a pass of no batch, then the next epoch."""
    state = battery.state_after(skipping(places[1]), COUNT // BATCH - 2)
    assert state["samples"] == COUNT - BATCH
    resumed = skipping(places[1])
    resumed.load_state_dict(state)
    assert list(resumed) == []
    assert (resumed.epoch, resumed.state_dict()["samples"]) == (1, 0)


def test_the_state_counts_what_was_skipped_as_consumed(places):
    """Batch 3 does not come: the fourth batch that does is number 4."""
    loader = skipping(places[1])
    batches = iter(loader)
    positions = [(next(batches) and loader.state_dict()["samples"]) for _ in range(4)]
    assert positions == [BATCH, 2 * BATCH, 3 * BATCH, 5 * BATCH]
    batches.close()


def test_all_samples_are_bad(tmp_path):
    root = folder_of(tmp_path, **{f"p{number}": b"no" for number in range(6)})
    loader = skipping(root, max_bad=1.0)
    assert list(loader) == []
    assert loader.epoch == 1
    assert loader.stats().skipped == 6


def test_a_batch_none_of_which_can_be_measured_is_left_out(tmp_path, places):
    """Where the view leaves the size to the images."""
    first = places[0].read("image", 0)
    root = folder_of(tmp_path, a=b"no", b=b"nor this", c=first, d=first)
    (batch,) = skipping(root, view=None, batch_size=2)
    assert len(batch["image"]) == 2


def test_more_bad_samples_than_max_bad(places):
    loader = skipping(places[1], max_bad=0.1)
    fails(TooManyBadSamplesError, loader, "5 of 40 samples are bad, expected at most 4 (max_bad=0.1)")


def test_ranks_may_not_skip(places):
    with pytest.raises(UsageError) as caught:
        skipping(places[1], rank=0, world_size=2)
    says(caught, "expected 'replace' or 'raise' with world_size=2, got 'skip'", "a step less")
