"""`Stats`: its words for made-up numbers, and its counts after a run."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from loader_data import COUNT, encode, photograph, write_folder
from processes import eventually

import headrace as hr
from headrace.fetch import FetchStats
from headrace.loader import StageStats, Stats
from headrace.loader.stats import STAGES
from headrace.stores import RequestCounts

BUSY = {"read": 1.0, "probe": 0.5, "decode": 12.0, "resample": 4.0, "augment": 0.0}


def made_up(*, busy=None, **numbers):
    times = BUSY | (busy or {})
    stages = {name: StageStats(seconds, 1000 if seconds else 0, 10**6) for name, seconds in times.items()}
    given = {
        "batches": 10,
        "samples": 1000,
        "wall_s": 10.0,
        "consumer_wait_s": 4.0,
        "feed_wait_s": 0.0,
        "python_s": 0.1,
        "idle_s": 0.5,
        "threads": 2,
        "ready_batches": 0,
        "batch_bytes": 1 << 20,
        "bad": 0,
        "replaced": 0,
        "declined": 0,
        "retries": 0,
        "left_out": 0,
        "repeated": 0,
        "stages": stages,
    }
    return Stats(**(given | numbers))


WAITED = "limits this run: the consumer waited 40% of the time"
WORDS = {
    "start": "Nothing has been taken yet.",
    "consumer": "Data is not what limits this run: the consumer waited 1.0% of the time.",
    "store": f"The store {WAITED}, most of it for its answers.",
    "python": f"Python {WAITED} while the core's threads idled.",
    "decode": f"The loader {WAITED}, most of it for decode on 2 threads.",
    "read": f"The loader {WAITED}, most of it for read on 2 threads.",
    "map": f"The loader {WAITED}, most of it for map in 3 processes.",
    "text": f"The loader {WAITED}, most of it for text in the feed's own thread.",
}


def of_store(stall_s: float) -> FetchStats:
    return FetchStats(RequestCounts(requests=9), {0.5: 0.02}, 0, 1, wait_s=6.0, stall_s=stall_s)


@pytest.mark.parametrize(
    ("numbers", "limit"),
    [
        ({"batches": 0}, "start"),
        ({"consumer_wait_s": 0.1}, "consumer"),
        ({}, "decode"),
        ({"fetch": of_store(stall_s=3.0)}, "store"),
        ({"fetch": of_store(stall_s=1.0)}, "decode"),
        ({"busy": {"read": 50.0}}, "read"),
        ({"idle_s": 100.0}, "python"),
        ({"idle_s": 100.0, "map_workers": 3, "busy": {"map": 25.0}}, "map"),
        ({"idle_s": 100.0, "map_workers": 3, "busy": {"map": 5.0}}, "python"),
        ({"idle_s": 17.5, "map_workers": 3, "busy": {"map": 25.0}}, "map"),
        ({"idle_s": 100.0, "busy": {"text": 6.0}}, "text"),
        ({"idle_s": 100.0, "busy": {"text": 4.0}}, "python"),
        ({"busy": {"text": 9.0}}, "decode"),
        ({"idle_s": 0.0, "map_workers": 3, "busy": {"map": 25.0}}, "decode"),
    ],
)
def test_what_limits_in_words(numbers, limit):
    stats = made_up(**numbers)
    assert stats.limit == limit
    assert str(stats).splitlines()[0] == WORDS[limit]


def test_a_short_wait_costs_little():
    said = "The loader costs this run little: the consumer waited 5% of the time, most of it for decode on 2 threads."
    assert str(made_up(consumer_wait_s=0.5)).splitlines()[0] == said


def test_the_whole_text():
    stats = made_up(declined=7, retries=5, bad=2, replaced=3, left_out=12)
    assert str(stats).splitlines()[1:] == [
        "10 batches, 1,000 samples, 100 samples/s",
        "  read        6%    1,000.0 µs an item",
        "  probe       3%      500.0 µs an item",
        "  decode     69%   12,000.0 µs an item",
        "  resample   23%    4,000.0 µs an item",
        "  7 samples were decoded by Pillow, not by the core",
        "  2 bad samples, 3 replacements",
        "  5 times a read failed for a reason that may pass, and was tried again",
        "  an epoch leaves out 12 samples and repeats 0",
    ]


def test_what_was_not_measured_is_none():
    assert StageStats(0.0, 0, 0).us_per_item is None
    nothing = replace(made_up(), stages={name: StageStats(0.0, 0, 0) for name in STAGES})
    assert len(str(nothing).splitlines()) == 2


def test_stats_are_json():
    data = json.loads(json.dumps(made_up().to_dict()))
    assert data["limit"] == "decode"
    assert data["stages"]["read"] == {"busy_s": 1.0, "items": 1000, "bytes": 1000000}


@pytest.fixture
def photos(tmp_path):
    return hr.open(write_folder(tmp_path / "photos"))


def load(data, **options):
    given = {"view": hr.Resize((16, 16)), "batch_size": 12, "output": "numpy", "threads": 2}
    return hr.Loader(data, **(given | options))


def test_there_are_none_before_the_first_pass(photos):
    assert load(photos).stats() is None


def test_counts_after_a_run(photos):
    loader = load(photos)
    list(loader)
    stats = loader.stats()
    assert (stats.batches, stats.samples, stats.ready_batches) == (4, COUNT, 0)
    assert (stats.bad, stats.replaced, stats.declined, stats.threads) == (0, 0, 0, 2)
    assert stats.batch_bytes == (COUNT - 3 * 12) * 3 * 16 * 16
    files = sum(len(photos.read("image", number)) for number in range(COUNT))
    assert stats.stages["augment"].items == 0
    for stage in set(STAGES) - {"augment"}:
        assert stats.stages[stage].items == COUNT
        assert stats.stages[stage].busy_s > 0
    for stage in ("read", "probe", "decode"):
        assert stats.stages[stage].bytes == files
    assert 0 < stats.consumer_wait_s <= stats.wall_s
    assert sum(stage.busy_s for stage in stats.stages.values()) + stats.idle_s <= 2 * stats.wall_s * 1.01


def test_augmentation_is_a_stage_of_its_own(photos):
    loader = load(photos, augment=hr.RandomInvert(p=1.0))
    list(loader)
    stage = loader.stats().stages["augment"]
    assert (stage.items, stage.bytes) == (COUNT, COUNT * 3 * 16 * 16)
    assert stage.busy_s > 0
    assert "augment" in str(loader.stats())


def test_stats_of_a_finished_pass_stand_still(photos):
    loader = load(photos)
    list(loader)
    assert loader.stats() == loader.stats()


def test_idle_time_is_counted_while_threads_wait(photos):
    """Nothing is asked of the core while the consumer keeps what is ready: that is idle time, too."""
    loader = load(photos, batch_size=4, prefetch=1)
    iterator = iter(loader)
    next(iterator)
    first = loader.stats()
    assert eventually(lambda: loader.stats().idle_s > first.idle_s + 0.01)
    iterator.close()


def test_counts_in_mid_epoch(photos):
    loader = load(photos, prefetch=2)
    iterator = iter(loader)
    next(iterator)
    stats = iterator.stats()
    assert stats.batches == 1
    assert stats.ready_batches <= 2
    iterator.close()


def test_python_is_counted_in_cpu_seconds(photos):
    """The feeding thread's own; a pass over 40 images is far less than it takes to wait for a whole second."""
    loader = load(photos)
    list(loader)
    assert 0 < loader.stats().python_s <= loader.stats().wall_s


def test_declined_and_replaced_are_counted(tmp_path):
    root = tmp_path / "photos"
    root.mkdir()
    for number in range(8):
        kind, suffix = ("BMP", "bmp") if number < 3 else ("PNG", "png")
        (root / f"{number}.{suffix}").write_bytes(encode(photograph(number, 30, 20), kind))
    (root / "8.jpg").write_bytes(b"")
    loader = load(root)
    list(loader)
    stats = loader.stats()
    assert (stats.bad, stats.replaced) == (1, 1)
    assert stats.declined in (3, 4), "the replacement may be one of them"
    assert "1 bad samples, 1 replacements" in str(stats)


def test_labels_cost_no_stage(photos):
    loader = load(photos, fields={"label": hr.Label()}, view=None)
    labels = np.concatenate([batch["label"] for batch in loader])
    assert len(labels) == COUNT
    assert all(stage.items == 0 for stage in loader.stats().stages.values())
