"""The battery over images with captions and embeddings: lists, members of a tar, damaged ones, map workers."""

from __future__ import annotations

import json

import battery
import numpy as np
import pytest
from loader_data import write_folder
from text_data import caption, tokenizer, whitespace, write_tar

import headrace as hr

VIEW = hr.RandomResizedCrop(24, flip=0.5)
LONG = 10


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    root = tmp_path_factory.mktemp("texts")
    write_folder(root / "photos")
    paths = sorted(path.relative_to(root / "photos") for path in (root / "photos").rglob("*.*"))
    rows = [
        {"image": str(path), "caption": [caption(5 * number + which) for which in range(1 + number % 5)]}
        for number, path in enumerate(paths)
    ]
    (root / "captions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        "lists": hr.open(root / "captions.jsonl", root=root / "photos"),
        "tar": hr.open(write_tar(root / "pairs.tar")),
        "damaged": hr.open(write_tar(root / "damaged.tar", damaged=True)),
    }


def count_tokens(sample, rng):
    return sample | {"count": int(sample["caption"]["mask"].sum()), "drawn": rng.random()}


CASES = {
    "lists, numpy": {"place": "lists", "output": "numpy"},
    "lists, torch, map": {"place": "lists", "output": "torch", "map": count_tokens},
    "lists, wrap, function": {"place": "lists", "output": "numpy", "remainder": "wrap", "tokenizer": whitespace},
    "tar, torch": {"place": "tar", "output": "torch"},
    "bad samples": {"place": "damaged", "output": "numpy", "max_bad": 0.5},
}
WORKERS = {"place": "damaged", "output": "numpy", "max_bad": 0.5, "map": count_tokens}


def factory(places, *, place, tokenizer=tokenizer, pad="max", max_length=LONG, **options):
    encoding = tokenizer if tokenizer is whitespace else tokenizer()
    source = "caption" if place == "lists" else "txt"
    fields = {
        "image": hr.Image(),
        "caption": hr.Text(encoding, max_length=max_length, pad=pad, source=source, pad_id=0),
    }
    if place != "lists":
        fields["npy"] = hr.Array()

    def make(**overrides):
        given = {"view": VIEW, "batch_size": battery.GLOBAL_BATCH, "shuffle": True, "seed": 5, "threads": 2} | options
        return hr.Loader(places[place], fields, **(given | overrides))

    return make


@battery.over(CASES)
@pytest.mark.one_in(3)
def test_battery(places, case, check):
    check(factory(places, **CASES[case]))


def test_map_workers_make_what_threads_make(places):
    expected = battery.epochs(factory(places, **WORKERS)())
    battery.assert_equal(battery.epochs(factory(places, **WORKERS, map_workers=2)()), expected, "map_workers=2")


@pytest.mark.long
@pytest.mark.parametrize("check", battery.CHECKS.values(), ids=battery.CHECKS)
def test_the_battery_with_map_workers(places, check):
    check(factory(places, **WORKERS, map_workers=2))


def test_ranks_that_pad_to_their_own_longest_differ_in_padding_alone(places):
    """What a rank's part is padded to is its own; its ids and mask are those of world size 1."""
    make = factory(places, place="lists", pad="batch", output="numpy")
    whole = [_unpadded(batch) for batch in battery.epochs(make())]
    ranks = [battery.epochs(loader) for loader in battery.loaders_of(make, battery.GLOBAL_BATCH, 4)]
    widths = set()
    for parts, expected in zip(zip(*ranks, strict=True), whole, strict=True):
        widths.add(len({part["caption"]["ids"].shape[1] for part in parts}))
        assert [row for part in parts for row in _unpadded(part)] == expected
    assert max(widths) > 1, "some ranks pad to other lengths"


@pytest.mark.parametrize("batch_size", [battery.GLOBAL_BATCH, "budget"])
def test_with_buckets_of_lengths_all_ranks_have_one_shape(places, batch_size):
    """Padding included, the parts joined are the batch of world size 1."""
    buckets = hr.Buckets("length", source="caption", count=3)
    make = factory(places, place="lists", pad="batch", max_length=64, output="numpy", buckets=buckets)
    sizes = {size: size for size in (battery.GLOBAL_BATCH, battery.GLOBAL_BATCH // 2, battery.GLOBAL_BATCH // 4)}
    if batch_size == "budget":
        sizes = {size: hr.Budget(tokens=size * 64, rank_multiple=4) for size in sizes}
    whole = battery.epochs(make(batch_size=sizes[battery.GLOBAL_BATCH]))
    widths = set()
    for world_size in (2, 4):
        ranks = [
            battery.epochs(make(batch_size=sizes[battery.GLOBAL_BATCH // world_size], rank=rank, world_size=world_size))
            for rank in range(world_size)
        ]
        for parts, expected in zip(zip(*ranks, strict=True), whole, strict=True):
            assert len({part["caption"]["ids"].shape[1] for part in parts}) == 1
            battery.assert_equal([battery.joined(parts)], [expected], f"world_size={world_size}")
            widths.add(expected["caption"]["ids"].shape[1])
    assert len(widths) > 1, "steps differ in length"


def _unpadded(batch):
    ids, mask = batch["caption"]["ids"], batch["caption"]["mask"]
    return [row[keep].tolist() for row, keep in zip(ids, mask, strict=True)]


def test_captions_of_an_epoch_differ_from_the_last(places):
    """The battery compares equals; this shows that its subjects are not all the same."""
    first, second = (
        battery.kept(factory(places, place="lists", output="numpy", shuffle=False)(seed=seed)) for seed in (5, 6)
    )
    differ = [
        not np.array_equal(*rows)
        for one, other in zip(first, second, strict=True)
        for rows in zip(one["caption"]["ids"], other["caption"]["ids"], strict=True)
    ]
    assert 8 < sum(differ) < 32
