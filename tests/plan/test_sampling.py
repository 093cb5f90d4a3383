"""Draws of an epoch: what they are by independent means, how often they come, and that every rank and resume agree."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter, defaultdict

import numpy as np
import pytest
import torch
from docs_pages import examples
from hypothesis import given
from hypothesis import strategies as st
from loader_data import encode, photograph
from scipy import stats
from twin import rng as twin

import headrace as hr
from headrace.errors import StateError, UsageError
from headrace.plan import RepeatFactor, Sampling, State, UniformPlan, resume, state_after
from headrace.plan.draws import RepeatedDraws
from headrace.plan.order import FIRST_REPLACEMENT_PASS, world_sizes

SIZE = 24
WEIGHTS = [0.0, 1, 2, 3, 0.5, 0, 4, 1] * 3
LABELS = [0] * 3 + [5] * 6 + [2] * 15
LISTS = [[], [1, 1], [2, 1], [7]] + [[2]] * 12 + [[7, 2, 2]] * 8
"""Categories of images as annotations have them: none, one, several, and one several times."""

WAYS = {
    "weights": {"weights": WEIGHTS},
    "balanced": {"balanced": "label"},
    "factors": {"balanced": RepeatFactor(0.9, source="many")},
    "repeats": {"repeats": 3},
    "a part": {"samples_per_epoch": 10},
    "repeats of more": {"repeats": 2, "samples_per_epoch": 60},
    "few weights": {"weights": WEIGHTS, "samples_per_epoch": 7},
}


@pytest.fixture(scope="module")
def data():
    texts = [f"sample {number}" for number in range(SIZE)]
    return hr.open({"text": texts, "label": LABELS, "many": LISTS, "weight": WEIGHTS})


def plan_of(data, way, *, batch_size=4, **order):
    draws = Sampling(**WAYS.get(way, way) if isinstance(way, str) else way).draws(data)
    return UniformPlan(length=draws.count, batch_size=batch_size, draws=draws, **order)


def epoch_of(plan, epoch=0):
    """The samples and passes of an epoch, in order."""
    batches = [plan.batch(epoch, step) for step in range(plan.steps)]
    return [np.concatenate([getattr(batch, name) for batch in batches]) for name in ("samples", "passes")]


def uniform(key, position, stage):
    """`unit_interval` of the documented address, by the twin's Philox."""
    words = [position & 0xFFFF_FFFF, position >> 32, 0, stage << 8]
    low, high, *_ = (int(word) for word in twin.philox(key, np.array(words, np.uint32)))
    return ((high << 32 | low) >> 11) / 2**53


def test_a_weighted_draw_inverts_the_distribution_of_a_keyed_uniform(data):
    samples, passes = epoch_of(plan_of(data, "weights", seed=9), epoch=4)
    total = sum(WEIGHTS)
    for position, sample in enumerate(samples.tolist()):
        point = uniform(twin.hash64(9, 4), position, 252) * total
        below = math.fsum(WEIGHTS[:sample])
        assert below <= point < below + WEIGHTS[sample]
    assert passes.tolist() == list(range(SIZE))


@pytest.mark.parametrize(
    ("way", "weights"),
    [("weights", WEIGHTS), ("balanced", [1 / LABELS.count(label) for label in LABELS])],
)
def test_draws_come_in_proportion(data, way, weights):
    plan = plan_of(data, {**WAYS[way], "samples_per_epoch": 30_000}, batch_size=10_000, seed=1)
    shares = np.array(weights) / sum(weights)
    counts = np.bincount(epoch_of(plan)[0], minlength=SIZE)
    assert not counts[shares == 0].any()
    assert stats.chisquare(counts[shares > 0], shares[shares > 0] * counts.sum()).pvalue > 1e-3
    replaced = np.bincount([plan.replacement(2, 5, attempt)[0] for attempt in range(4000)], minlength=SIZE)
    assert not replaced[shares == 0].any()
    assert stats.chisquare(replaced[shares > 0], shares[shares > 0] * 4000).pvalue > 1e-3


def test_neighbouring_draws_are_independent(data):
    plan = plan_of(data, {"balanced": "label", "samples_per_epoch": 20_000}, batch_size=20_000, seed=3)
    classes = np.array(LABELS)[epoch_of(plan)[0]].reshape(-1, 2)
    names, places = np.unique(classes, return_inverse=True)
    pairs = np.bincount(places.reshape(-1, 2) @ [len(names), 1], minlength=len(names) ** 2)
    assert stats.chisquare(pairs).pvalue > 1e-3


def lvis_factors(lists, threshold):
    """Of Gupta et al., step by step, as one would write it down from the paper."""
    images_of = defaultdict(set)
    for image, categories in enumerate(lists):
        for category in categories:
            images_of[category].add(image)
    of_category = {
        category: max(1.0, math.sqrt(threshold / (len(images) / len(lists)))) for category, images in images_of.items()
    }
    return [max((of_category[category] for category in categories), default=1.0) for categories in lists]


def test_factors_are_those_of_lvis(data):
    images = np.repeat(np.arange(SIZE), [len(each) for each in LISTS])
    categories = np.concatenate([np.array(each, np.int64) for each in LISTS])
    got = RepeatFactor(0.9).factors(images, categories, count=SIZE)
    assert got.tolist() == lvis_factors(LISTS, 0.9)
    assert got.max() > 2
    names = np.array([f"category {number}" for number in categories])
    assert RepeatFactor(0.9).factors(images, names, count=SIZE).tolist() == got.tolist()
    assert RepeatFactor(0.5).factors(images[:0], categories[:0], count=2).tolist() == [1, 1]


@given(st.lists(st.lists(st.integers(-3, 6), max_size=4), min_size=1, max_size=30), st.floats(1e-3, 1))
def test_factors_of_any_lists(lists, threshold):
    images = np.repeat(np.arange(len(lists)), [len(each) for each in lists])
    categories = np.array([category for each in lists for category in each], np.int64)
    expected = lvis_factors(lists, threshold)
    assert RepeatFactor(threshold).factors(images, categories, count=len(lists)).tolist() == expected


def test_each_epoch_rounds_the_factors_anew_and_keeps_its_length(data):
    factors = np.array(lvis_factors(LISTS, 0.9))
    plan = plan_of(data, "factors", batch_size=64)
    assert plan.length == math.ceil(factors.sum())
    scaled = factors * plan.length / factors.sum()
    total = np.zeros(SIZE)
    for epoch in range(600):
        samples, passes = epoch_of(plan, epoch)
        counts = np.bincount(samples, minlength=SIZE)
        assert (counts >= np.floor(scaled)).all()
        assert (counts <= np.ceil(scaled)).all()
        assert sorted(passes.tolist()) == list(range(plan.length))
        total += counts
    # A count is one of two neighbours, so its variance is p (1 - p): five deviations.
    share = scaled - np.floor(scaled)
    assert (abs(total / 600 - scaled) <= 5 * np.sqrt(share * (1 - share) / 600) + 1e-9).all()
    assert len({tuple(epoch_of(plan, epoch)[0]) for epoch in range(5)}) == 5


def by_label(data, *, batch_size=6, **options):
    """The plan of a Loader whose buckets are the labels."""
    buckets = hr.Buckets(lambda sample: sample["label"])
    loader = hr.Loader(
        data,
        {"text": hr.Raw()},
        batch_size=batch_size,
        buckets=buckets,
        balanced=RepeatFactor(0.9, source="many"),
        shuffle=True,
        output="numpy",
        **options,
    )
    return loader._feed.recipe.plan


def test_factors_hold_in_each_bucket_and_an_epoch_keeps_its_length(data):
    factors, labels = np.array(lvis_factors(LISTS, 0.9)), np.array(LABELS)
    scaled = factors.copy()
    for label in set(LABELS):
        of = labels == label
        scaled[of] *= math.ceil(factors[of].sum()) / factors[of].sum()
    plan = by_label(data)
    assert plan.length == round(scaled.sum()) > SIZE
    total = np.zeros(SIZE)
    for epoch in range(300):
        samples, passes = epoch_of(plan, epoch)
        counts = np.bincount(samples, minlength=SIZE)
        assert (np.floor(scaled + 1e-9) <= counts).all()
        assert (counts <= np.ceil(scaled - 1e-9)).all()
        assert len(set(zip(samples.tolist(), passes.tolist(), strict=True))) == plan.length
        total += counts
    share = scaled - np.floor(scaled)
    assert (abs(total / 300 - scaled) <= 5 * np.sqrt(share * (1 - share) / 300) + 1e-9).all()
    for step in range(plan.steps):
        batch = plan.batch(7, step)
        assert len(set(labels[batch.samples].tolist())) == 1
        stand_ins = [plan.replacement(7, int(batch.positions[0]), attempt)[0] for attempt in range(8)]
        assert set(labels[stand_ins].tolist()) == {labels[batch.samples[0]]}
    others = {plan.replacement(7, 0, attempt)[0] for attempt in range(8, 90)}
    assert max(others) < SIZE
    assert set(labels[list(others)].tolist()) == set(LABELS)


@pytest.mark.parametrize("remainder", ["short", "wrap", "drop"])
def test_ranks_share_buckets_of_draws(data, remainder):
    alone = by_label(data, remainder=remainder, seed=2)
    ranks = [by_label(data, batch_size=2, world_size=3, rank=r, remainder=remainder, seed=2) for r in range(3)]
    seen = []
    for step in range(alone.steps):
        whole, parts = alone.batch(1, step), [plan.batch(1, step) for plan in ranks]
        for name in ("samples", "passes", "positions"):
            assert np.array_equal(np.concatenate([getattr(part, name) for part in parts]), getattr(whole, name))
        seen += zip(whole.samples.tolist(), whole.passes.tolist(), strict=True)
    assert len(set(seen)) == len(seen) == alone.length - alone.left_out + alone.repeated
    state = state_after(alone, epoch=1, steps=1, dataset="d", core="c")
    assert resume(state, ranks[1], dataset="d", core="c").step == 1
    other = dataclasses.replace(alone, grouping=alone.grouping.partition("; ")[2])
    with pytest.raises(StateError, match=r"expected batches by 'buckets .* got 'repeat factors \(.*; buckets"):
        resume(state, other, dataset="d", core="c")


class RASampler:
    """DeiT's rule (samplers.py, Touvron et al. 2021), by lists: whose order is given, as torch draws another."""

    def __init__(self, order, ranks, rank, repeats):
        each = math.ceil(len(order) * repeats / ranks)
        places = [sample for sample in order for _ in range(repeats)]
        places += places[: each * ranks - len(places)]
        self.samples = places[rank : each * ranks : ranks][: len(order) // 256 * 256 // ranks]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("ranks", "repeats"), [(1, 3), (2, 3), (4, 3), (8, 3), (4, 2), (8, 4)])
def test_repeats_are_those_of_deit(ranks, repeats):
    data = hr.open({"number": range(768)})
    plans = [
        plan_of(data, {"repeats": repeats}, batch_size=96 // ranks, world_size=ranks, rank=rank, seed=5)
        for rank in range(ranks)
    ]
    key = twin.hash64(5, 2)
    order = [twin.permute(768, key, place) for place in range(768)]
    theirs = [RASampler(order, ranks, rank, repeats).samples for rank in range(ranks)]
    ours = [epoch_of(plan, 2) for plan in plans]
    came = Counter(sample for samples, _ in ours for sample in samples.tolist())
    assert came == Counter(sample for each in theirs for sample in each)
    assert [len(samples) for samples, _ in ours] == [len(samples) for samples in theirs]
    pairs = [pair for samples, passes in ours for pair in zip(samples.tolist(), passes.tolist(), strict=True)]
    assert sorted(pairs) == sorted((sample, copy) for sample in order[: 768 // repeats] for copy in range(repeats))
    for step in range(plans[0].steps):
        parts = [plan.batch(2, step).samples for plan in plans]
        # A global batch holds the same samples as theirs: the next 96 places of the repeated order.
        first = step * 96
        assert Counter(np.concatenate(parts).tolist()) == Counter(
            order[place // repeats] for place in range(first, first + 96)
        )


@given(st.integers(2, 7), st.integers(0, 4), st.integers(1, 9), st.integers(1, 60), st.integers(0, 9))
def test_no_rank_has_a_sample_twice(repeats, more, batch_size, length, seed):
    ranks = repeats + more
    if repeats * batch_size * ranks > length:  # a batch then holds some samples more often than that
        length = repeats * batch_size * ranks
    draws = RepeatedDraws(count=length, samples=length, words="", repeats=repeats)
    for rank in range(ranks):
        plan = UniformPlan(
            length=length,
            batch_size=batch_size,
            draws=draws,
            world_size=ranks,
            rank=rank,
            seed=seed,
            remainder="drop",
        )
        for step in range(plan.steps):
            samples = plan.batch(0, step).samples.tolist()
            assert len(set(samples)) == len(samples)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("remainder", ["short", "wrap", "drop"])
def test_ranks_joined_are_the_batch_of_world_size_one(data, way, remainder):
    alone = plan_of(data, way, batch_size=6, remainder=remainder, seed=7)
    for world_size in world_sizes(6):
        ranks = [
            plan_of(
                data, way, batch_size=6 // world_size, remainder=remainder, seed=7, world_size=world_size, rank=rank
            )
            for rank in range(world_size)
        ]
        for step in range(alone.steps):
            whole, parts = alone.batch(3, step), [plan.batch(3, step) for plan in ranks]
            for name in ("samples", "passes", "positions"):
                joined = np.concatenate([getattr(part, name) for part in parts])
                assert np.array_equal(joined, getattr(whole, name))
                assert joined.dtype == getattr(whole, name).dtype
            assert ranks[-1].replacement(3, step, 1) == alone.replacement(3, step, 1)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("remainder", ["short", "wrap", "drop"])
@pytest.mark.parametrize("batch_size", [1, 5, 24, 100])
def test_every_draw_of_an_epoch_has_a_pass_of_its_own(data, way, remainder, batch_size):
    length = Sampling(**WAYS[way]).draws(data).count
    if remainder == "drop" and batch_size > length:
        return
    plan = plan_of(data, way, batch_size=batch_size, remainder=remainder)
    samples, passes = epoch_of(plan)
    assert len(set(zip(samples.tolist(), passes.tolist(), strict=True))) == len(samples)
    assert passes.max() < FIRST_REPLACEMENT_PASS
    assert len(samples) == length - plan.left_out + plan.repeated
    if remainder == "short":
        assert len(samples) == length
        assert len(set(samples.tolist())) <= plan.draws.different == plan.rank_samples
    assert not np.array_equal(samples, epoch_of(plan, 1)[0])


def test_a_part_is_the_beginning_of_the_order(data):
    whole = UniformPlan(length=SIZE, batch_size=5, seed=3)
    part = plan_of(data, "a part", batch_size=5, seed=3)
    assert part.steps == 2
    assert all(np.array_equal(part.batch(6, step).samples, whole.batch(6, step).samples) for step in range(2))


def test_weights_in_any_form_are_the_same_draws(data):
    forms = [WEIGHTS, np.array(WEIGHTS), np.array(WEIGHTS, np.float32), torch.tensor(WEIGHTS), "weight"]
    plans = [plan_of(data, {"weights": weights}) for weights in forms]
    assert len({tuple(epoch_of(plan)[0]) for plan in plans}) == 1
    assert len({plan.grouping for plan in plans[:-1]}) == 1
    chosen = data.select(range(SIZE - 1, 2, -2))
    got = epoch_of(plan_of(chosen, {"weights": "weight"}))[0]
    assert got.tolist() == epoch_of(plan_of(chosen, {"weights": WEIGHTS[:2:-2]}))[0].tolist()


def test_a_sample_of_no_weight_never_comes_where_a_point_is_rounded_up():
    data = hr.open({"number": range(4)})
    draws = Sampling(weights=[0, 1e300, 1e-300, 0]).draws(data)
    assert {draws.pick(0), draws.pick((1 << 64) - 1)} == {1}
    last = Sampling(balanced=RepeatFactor(1.0, source="number")).draws(data)
    assert [last.pick(bits) for bits in (0, (1 << 64) - 1)] == [0, 3]


def test_another_sampling_is_a_state_error(data):
    def state_of(plan):
        return state_after(plan, epoch=1, steps=2, dataset="d", core="c")

    plans = {way: plan_of(data, way, batch_size=2) for way in WAYS}
    plans |= {"none": UniformPlan(length=SIZE, batch_size=2)}
    plans |= {"other weights": plan_of(data, {"weights": [1.0, *WEIGHTS[1:]]}, batch_size=2)}
    for saved, by in plans.items():
        state = State.from_dict(state_of(by).to_dict())
        assert len(state.grouping) < 100
        for name, plan in plans.items():
            if name == saved:
                assert resume(state, plan, dataset="d", core="c").step == 2
                continue
            with pytest.raises(
                StateError, match=r"state: expected (samples in an epoch|batches by) .*samples_per_epoch="
            ):
                resume(state, plan, dataset="d", core="c")
    with pytest.raises(StateError, match=r"expected seed 1 .* got 0"):
        resume(state_of(plans["weights"]), plan_of(data, "weights", batch_size=2, seed=1), dataset="d", core="c")


IMAGE = {"text": hr.Raw()}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weights": WEIGHTS, "balanced": "label"}, r"weights: expected no balanced= alongside, got both; leave one"),
        ({"balanced": "label", "repeats": 3}, "balanced: expected no repeats= alongside"),
        ({"weights": WEIGHTS, "shuffle": False}, r"weights: expected shuffle=True with it, .* got shuffle=False"),
        ({"samples_per_epoch": 9, "shuffle": False}, "samples_per_epoch: expected shuffle=True with it"),
        ({"weights": WEIGHTS, "buckets": hr.Buckets("length", source="text")}, "weights: .*, got buckets=, which"),
        ({"repeats": 2, "pack": hr.SequencePacking(8)}, "repeats: .*, got pack=, which groups every sample once"),
        ({"balanced": RepeatFactor(0.1), "pack": hr.SequencePacking(8)}, "balanced: .*, got pack=, which groups"),
        (
            {"balanced": RepeatFactor(0.1), "samples_per_epoch": 9, "buckets": hr.Buckets("length", source="text")},
            r"balanced: .*, got buckets=, .* \(hr.RepeatFactor, with an epoch of its own length, goes with all",
        ),
        ({"repeats": 2, "batch_size": hr.Budget(tokens=8)}, "repeats: .*, got a Budget as batch_size="),
        ({"repeats": 0}, "repeats: expected an int from 1 to 65536, got 0; it is how often each sample comes"),
        ({"repeats": 2.0}, "repeats: expected an int from 1"),
        ({"samples_per_epoch": 0}, "samples_per_epoch: expected an int from 1 to 1073741824, got 0"),
        ({"samples_per_epoch": 3, "remainder": "drop"}, "a global batch of at most the 3 samples of the epoch, got 4"),
        ({"weights": WEIGHTS[1:]}, "weights: expected 24 numbers, one a sample of the dataset, got 23"),
        ({"weights": [WEIGHTS]}, r"weights: expected 24 numbers, .* array of float64 of shape \[1, 24\]"),
        ({"weights": ["1"] * 24}, "weights: expected 24 numbers, one a sample, got an array of <U1"),
        ({"weights": [1.0] * 23 + [-1]}, r"weights: expected finite numbers of at least 0, got -1.0 at sample 23"),
        ({"weights": [float("nan"), *WEIGHTS[1:]]}, "got nan at sample 0; a weight of 0 leaves a sample out"),
        ({"weights": [0] * 24}, "weights: expected a sum above 0 that float64 can hold, got 0.0"),
        ({"weights": [1e308] * 24}, "weights: expected a sum above 0 that float64 can hold, got inf"),
        (
            {"weights": "text"},
            r"column of numbers \(label, weight, signed\), got 'text': a column of text; or pass",
        ),
        ({"weights": "nothing"}, "got 'nothing': no such column"),
        ({"balanced": True}, r"balanced: expected the name of a column of classes, such as 'label', .* got True"),
        (
            {"balanced": "class"},
            "expected the name of a column of classes, got 'class'; the dataset has text, label",
        ),
        ({"balanced": "many"}, r"got 'many', a column of lists; hr.RepeatFactor\(0.001, source='many'\) takes these"),
        ({"balanced": "weight"}, "balanced: expected whole numbers in column 'weight', got float64; use weights="),
        (
            {"balanced": "signed"},
            r"a class from 0 up .*, got -1 for 'sample 0'; leave such .* >= 0, 'signed'\)",
        ),
        ({"balanced": RepeatFactor(0.1, source="none")}, "RepeatFactor: expected source to be a column of categories"),
    ],
)
def test_bad_use_is_told_before_anything_is_read(data, arguments, message):
    given = {"batch_size": 4, "shuffle": True, "output": "numpy"} | arguments
    signed = data.with_column("signed", [-1, *LABELS[1:]])
    with pytest.raises(UsageError, match=message):
        hr.Loader(signed, IMAGE, **given)


def test_a_random_scale_groups_samples_too(data):
    images = data.with_column("image", [b"no image"] * SIZE)
    view = hr.RandomScale((16, 20))
    with pytest.raises(UsageError, match=r"weights: .*, got a RandomScale, which groups every sample once"):
        hr.Loader(images, {"image": hr.Image()}, view=view, weights=WEIGHTS, shuffle=True, batch_size=4, output="numpy")


@pytest.mark.parametrize("threshold", [0, -1, 1.5, True, "0.1", float("nan")])
def test_a_threshold_is_a_share(threshold):
    with pytest.raises(UsageError, match="RepeatFactor: expected threshold to be a share of the images above 0"):
        RepeatFactor(threshold)
    with pytest.raises(UsageError, match="RepeatFactor: expected source to be the name of a column, got 3"):
        RepeatFactor(0.1, source=3)


def test_the_examples_of_the_page_run(tmp_path, monkeypatch):
    overview, factors = examples("sampling.md", before="Shuffling")
    images = [encode(photograph(number, *((40, 30) if number % 3 else (30, 40))), quality=80) for number in range(6)]
    data = hr.open({"image": images, "label": [0, 0, 1, 1, 1, 1], "weight": [1.0, 2, 3, 4, 5, 6]})
    made = []

    class Page:
        """The package, whose loaders are noted and give numpy's arrays."""

        def __getattr__(self, name):
            return self.load if name == "Loader" else getattr(hr, name)

        def load(self, *given, **options):
            made.append(hr.Loader(*given, **options, output="numpy"))
            return made[-1]

    names = {"data": data, "fields": {"label": hr.Label()}, "hr": Page()}
    exec(overview, names)
    assert [len(np.concatenate([batch["label"] for batch in loader])) for loader in made[:-1]] == [6, 6, 6, 6]
    assert made[-1].samples == 100_000
    (tmp_path / "coco" / "train2017").mkdir(parents=True)
    for number, image in enumerate(images):
        (tmp_path / "coco" / "train2017" / f"{number}.jpg").write_bytes(image)
    annotations = [{"id": n, "image_id": n, "category_id": int(n > 3), "bbox": [0, 0, 9, 9]} for n in range(6)]
    files = [{"id": n, "coco_url": f"http://c/train2017/{n}.jpg", "width": 40, "height": 30} for n in range(6)]
    for each in files[::3]:
        each |= {"width": 30, "height": 40}
    categories = [{"id": 0, "name": "a"}, {"id": 1, "name": "b"}]
    lvis = {"images": files, "annotations": annotations, "categories": categories}
    (tmp_path / "lvis_v1_train.json").write_text(json.dumps(lvis))
    monkeypatch.chdir(tmp_path)
    names = {"hr": Page(), "fields": {"image": hr.Image()}}
    exec(factors, names)
    assert sum(len(batch["image"]) for batch in made[-1]) == 6


def test_a_loader_draws_and_a_mixture_takes_its_batches_whole(data):
    def make(**given):
        return hr.Loader(data, IMAGE, batch_size=6, shuffle=True, output="numpy", **given)

    loader = make(weights="weight", samples_per_epoch=1200, seed=2)
    assert (len(loader), loader.samples) == (200, 1200)
    came = Counter(text for batch in loader for text in batch["text"])
    assert set(came) == {f"sample {number}" for number, weight in enumerate(WEIGHTS) if weight}
    sources = {"drawn": make(repeats=3, seed=1), "other": make()}
    mixed = hr.mix(sources, weights={"drawn": 1, "other": 1})
    texts = [batch["text"] for batch in mixed if batch["source"][0] == 0]
    assert texts == [batch["text"] for batch in make(repeats=3, seed=1)]
    assert all(len(set(each)) == 2 for each in texts)
    with pytest.raises(UsageError, match=r"expected source 'drawn' without weights=, balanced=, repeats= and"):
        hr.mix({"drawn": make(repeats=3), "other": make()}, batches="mixed")
