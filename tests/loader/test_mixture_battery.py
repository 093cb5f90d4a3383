"""Mixtures: the battery over both kinds of batches, and what they hold beside their sources alone."""

from __future__ import annotations

from fractions import Fraction

import battery
import numpy as np
import pytest
from mixture_data import COUNTS, factory, loader_of, write_places

import headrace as hr
from headrace.plan import Mixture


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    return write_places(tmp_path_factory.mktemp("mixture"))


def jitter(sample, rng):
    return sample | {"jitter": rng.random(2)}


def drawn(batch, rng):
    return batch | {"drawn": rng.random(len(batch["label"]))}


BUCKETS = {
    "view": hr.RandomScale((16, 20), long_max=32, multiple_of=4),
    "buckets": hr.Buckets("orientation"),
    "remainder": "wrap",
}
CASES = {
    "one-source": {"batches": "one-source", "remainder": "wrap"},
    "one-source, short": {"batches": "one-source", "weights": None},
    "one-source, buckets": {"batches": "one-source", "only": {"photos": BUCKETS}, "remainder": "wrap"},
    "mixed": {"batches": "mixed"},
    "mixed, uneven": {"batches": "mixed", "weights": {"photos": 0.93, "scans": 0.07}, "epoch": 4},
    "mixed, windowed": {
        "batches": "mixed",
        "only": {"photos": {"order": hr.Windowed(block_samples=3, window_blocks=2)}},
    },
    "mixed, smallest, map": {"batches": "mixed", "epoch": "smallest", "map": jitter, "remainder": "wrap"},
}


@battery.over(CASES)
@pytest.mark.one_in(3)
def test_battery(places, case, check):
    check(factory(places, **CASES[case]))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("case", CASES)
def test_seek(places, case):
    make = factory(places, **CASES[case])
    expected = battery.epochs(make(), 3)
    loader = make()
    loader.seek(2, 1)
    battery.assert_equal(battery.kept(loader), expected[2 * len(loader) + 1 :], "seek")


# --- against the sources alone ---


def of_source(batches, number):
    return [batch for batch in batches if (batch["source"] == number).all()]


def test_batches_of_one_source_are_the_sources_own(places):
    """Bit for bit, its own short batches and batch_map included, one of its epochs after the other."""
    options = {"remainder": "short", "batch_map": drawn}
    mixed = factory(places, "one-source", **options)()
    batches = battery.epochs(mixed, 3)
    assert mixed.sources == ("photos", "scans")
    for number, name in enumerate(mixed.sources):
        mine = [{k: v for k, v in batch.items() if k != "source"} for batch in of_source(batches, number)]
        alone = battery.epochs(loader_of(places, name, **options), 8)
        assert len(mine) > len(alone) / 8, "more than one of its epochs"
        battery.assert_equal(mine, alone[: len(mine)], name)


def rows_of_source(batches, number):
    """Field by field, the samples of one source, in order."""
    return {
        name: np.concatenate([np.asarray(batch[name])[batch["source"] == number] for batch in batches])
        for name in ("image", "label", "key")
    }


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_samples_of_mixed_batches_are_the_sources_own(places, output):
    """In the source's order, epoch after epoch; those of its first epoch are cut as it cuts them alone."""
    mixed = factory(places, "mixed", output=output)()
    batches = battery.epochs(mixed, 2)
    for number, name in enumerate(mixed.sources):
        mine = rows_of_source(batches, number)
        alone = battery.epochs(loader_of(places, name, batch_size=COUNTS[name]), 8)
        keys = np.concatenate([batch["key"] for batch in alone])
        assert mine["key"].tolist() == keys[: len(mine["key"])].tolist()
        first = COUNTS[name]
        assert len(mine["key"]) > first
        assert mine["image"][:first].tobytes() == np.ascontiguousarray(alone[0]["image"]).tobytes()
        labels = np.concatenate([batch["label"] for batch in alone])
        assert mine["label"].tolist() == labels[: len(mine["label"])].tolist()


def test_a_sample_that_comes_again_gets_another_view(places):
    mixed = factory(places, "mixed", weights={"photos": 1, "scans": 8}, epoch=6)()
    rows = rows_of_source(battery.kept(mixed), 1)
    again = [np.flatnonzero(rows["key"] == key) for key in set(rows["key"].tolist())]
    assert max(map(len, again)) >= 4
    assert all(len({rows["image"][row].tobytes() for row in same}) == len(same) for same in again)


@pytest.mark.parametrize("batches", ["one-source", "mixed"])
def test_shares_are_exact_over_every_window(places, batches):
    mixed = factory(places, batches, weights={"photos": 0.6, "scans": 0.4}, epoch=9, remainder="wrap")()
    assert (mixed.window, mixed.shares) == (5, {"photos": Fraction(3, 5), "scans": Fraction(2, 5)})
    each = [batch["source"] for batch in battery.epochs(mixed, 2)]
    taken = np.concatenate(each) if batches == "mixed" else np.array([rows[0] for rows in each])
    order = Mixture((3, 2), seed=7)
    assert taken.tolist() == order.between(0, len(taken))[0].tolist(), "windows go on over the epoch's edge"
    for first in range(0, len(taken) - 4, 5):
        assert np.bincount(taken[first : first + 5], minlength=2).tolist() == [3, 2]


def test_every_rank_has_its_share(places):
    """Within two samples at any step, since each rank's part is a stretch of the same even order."""
    loaders = battery.loaders_of(factory(places, "mixed", epoch=10), battery.GLOBAL_BATCH, 2)
    for loader in loaders:
        for batch in loader:
            assert abs((batch["source"] == 0).sum() - 4) <= 2


def test_an_epoch_sees_all_of_the_largest_or_the_smallest(places):
    for batches in ("one-source", "mixed"):
        for epoch, needed in (("largest", ["photos", "scans"]), ("smallest", ["scans"])):
            mixed = factory(places, batches, epoch=epoch, remainder="short")()
            for _ in range(3):
                keys = [
                    (mixed.sources[number], key)
                    for batch in mixed
                    for number, key in zip(batch["source"], batch["key"], strict=True)
                ]
                for name in needed:
                    # What is seen may be the end of one of its epochs and the start of the next one.
                    assert sum(source == name for source, _ in keys) >= COUNTS[name] - battery.GLOBAL_BATCH
    first = factory(places, "one-source", epoch="largest")()
    assert {key for batch in first for key in batch["key"]} >= {
        key for batch in loader_of(places, "photos") for key in batch["key"]
    }


def test_by_size_an_epoch_is_every_sample_once(places):
    """As a loader over both would have it, but for what fills up the last batch."""
    mixed = factory(places, "mixed", weights=None)()
    keys = [(int(n), key) for batch in mixed for n, key in zip(batch["source"], batch["key"], strict=True)]
    assert len(mixed) == -(-54 // battery.GLOBAL_BATCH)
    assert len(set(keys[:54])) == 54
    assert mixed.samples == len(keys) == 60
