"""Which bucket each sample is in, what a batch may cost, and what is refused of both."""

from __future__ import annotations

import tarfile
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loader_data import add_member
from sized_data import sized
from twin.views import ViewError, short_side_size

import headrace as hr
from headrace.plan import Order, Sampling, ViewedImages, plan_of
from headrace.plan.bucket_codes import by_categories, by_numbers, members_of, shape_bounds
from headrace.plan.bucket_keys import size_categories, size_numbers
from headrace.plan.bucket_members import OneBucket
from headrace.plan.step_views import ImageSizes, StepViews, output_sizes
from headrace.views import compile_view

SIZES = [(30, 40), (40, 30), (50, 50), (30, 90), (90, 30), (30, 40), (33, 44), (40, 30)]
FIXED = hr.Resize((8, 8))


def plan(dataset, *, view=FIXED, batch_size=2, buckets=None, images=True, **order):
    given = {"world_size": 1, "rank": 0, "shuffle": True, "seed": 0, "remainder": "short"} | order
    return plan_of(
        dataset,
        Order(**given),
        batch_size=batch_size,
        buckets=buckets,
        program=compile_view(view),
        images=ViewedImages(column="image", exif=False, threads=1, limits=None) if images else None,
        texts=(),
        pack=None,
        sampling=Sampling(),
    )


def grouped(dataset, buckets, **options):
    """The samples of each bucket that has any."""
    members = plan(dataset, buckets=buckets, **options).members
    counts = members.counts.tolist()
    return [members.select(bucket, np.arange(count)).tolist() for bucket, count in enumerate(counts) if count]


# --- what a bucket is ---


@pytest.mark.parametrize(
    ("buckets", "expected"),
    [
        (hr.Buckets("orientation"), [[0, 2, 3, 5, 6], [1, 4, 7]]),
        (hr.Buckets("aspect", edges=[1, 1.4]), [[1, 4, 7], [0, 2, 5, 6], [3]]),
        (hr.Buckets("aspect", edges=[4 / 3]), [[1, 2, 4, 7], [0, 3, 5, 6]]),
        (hr.Buckets("aspect", count=2), [[1, 2, 4, 7], [0, 3, 5, 6]]),
        (hr.Buckets("size"), [[0, 5], [3], [6], [1, 7], [2], [4]]),
        (hr.Buckets("size", edges=[1300, 2600]), [[0, 1, 5, 7], [2, 6], [3, 4]]),
        (hr.Buckets("length", source="tokens", edges=[3, 6]), [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (hr.Buckets("length", source="text", edges=[2]), [[0, 2], [1, 3, 4, 5, 6, 7]]),
        (hr.Buckets("length", source="list", edges=[1, 5]), [[0], [1, 2, 3, 4], [5, 6, 7]]),
        (hr.Buckets(lambda sample: sample["text"][0]), [[0, 1], [2], [3, 4, 5], [6, 7]]),
        (hr.Buckets(lambda sample: sample["height"] - sample["tokens"], edges=[30]), [[3, 5, 6], [0, 1, 2, 4, 7]]),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, hr.Buckets) else "",
)
def test_samples_by_what_they_have(buckets, expected):
    texts = ["a", "ab", "c", "dé", "ddd", "dd", "ee", "eee"]
    dataset = sized(SIZES, tokens=list(range(8)), text=texts, list=[[1] * number for number in range(8)])
    assert grouped(dataset, buckets) == expected


def test_members_of_a_tar_count_by_their_bytes_and_absent_ones_go_to_the_largest_bucket(tmp_path):
    with tarfile.open(tmp_path / "texts.tar", "w") as tar:
        for number, text in enumerate([b"a", b"bb", None, b"cccc", b"d"]):
            add_member(tar, f"{number}.cls", b"0")
            if text is not None:
                add_member(tar, f"{number}.txt", text)
    dataset = hr.open(tmp_path / "texts.tar")
    assert grouped(dataset, hr.Buckets("length", source="txt", edges=[2, 4]), images=False) == [[0, 2, 4], [1], [3]]


def test_a_selection_keeps_its_own_numbers():
    dataset = sized(SIZES, tokens=list(range(8))).select([7, 3, 0])
    assert grouped(dataset, hr.Buckets("length", source="tokens", edges=[3, 6])) == [[2], [1], [0]]
    assert grouped(dataset, hr.Buckets("orientation")) == [[1, 2], [0]]
    assert grouped(dataset, hr.Buckets(lambda sample: sample["tokens"])) == [[0], [1], [2]]


def test_a_function_is_called_once_a_sample_with_what_is_held():
    seen = []
    dataset = sized(SIZES, label=list(range(8)))
    plan(dataset, buckets=hr.Buckets(lambda sample: seen.append(sample) or sample["label"], count=3))
    assert seen[1] == {"__key__": "s1", "height": 40, "width": 30, "label": 1}
    assert [sample["label"] for sample in seen] == list(range(8))


def test_quantiles_of_many_samples_are_drawn_by_the_seed_and_near_those_of_all():
    rng = np.random.default_rng(4)
    length = 150_000
    dataset = sized([(100, 100)] * length, tokens=rng.exponential(100, length))
    buckets = hr.Buckets("length", source="tokens", count=10)
    first, second, other = (plan(dataset, buckets=buckets, seed=seed) for seed in (1, 1, 2))
    assert first.grouping == second.grouping != other.grouping
    assert len(first.members.counts) == 10
    assert np.abs(first.members.counts / length - 0.1).max() < 0.006


def test_ties_make_fewer_buckets():
    dataset = sized([(30, 40)] * 80 + [(30, 60)] * 20)
    assert [len(samples) for samples in grouped(dataset, hr.Buckets("aspect", count=8))] == [80, 20]
    assert [len(samples) for samples in grouped(sized([(30, 40)] * 9), hr.Buckets("aspect"))] == [9]


@pytest.mark.parametrize("kind", ["numbers", "categories"])
def test_what_has_no_readable_size_goes_to_the_largest_bucket(kind):
    sizes = ImageSizes(np.array([(30, 40), (0, 0), (40, 30), (40, 30), (1, 5000), (0, 0)], np.int32))
    coding = by_categories(size_categories("size", sizes), length=6)
    if kind == "numbers":
        coding = by_numbers(size_numbers("aspect", sizes), hr.Buckets("aspect", edges=[1]), length=6, seed=0)
    members = members_of(coding, length=6, used=sizes.known)
    samples = {tuple(members.select(bucket, np.arange(count))) for bucket, count in enumerate(members.counts)}
    assert samples == {(0,), (1, 2, 3, 4, 5)}


@given(st.integers(0, 2**32 - 1), st.sampled_from([None, 90, 1000]), st.sampled_from([1, 8]))
@pytest.mark.long
def test_bounds_are_the_largest_that_any_member_has(seed, long_max, multiple):
    rng = np.random.default_rng(seed)
    known = rng.integers(1, 3000, (400, 2)).astype(np.int32)
    known[rng.random(400) < 0.05] = 0
    sizes = ImageSizes(known)
    view = hr.RandomScale((30, 75), long_max=long_max, multiple_of=multiple)
    for program in (compile_view(view), compile_view(None), compile_view(hr.Resize(40))):
        views = StepViews(tables=program.scales, output=None, sizes=sizes, multiple_of=program.multiple_of)
        coding = by_numbers(size_numbers("aspect", sizes), hr.Buckets("aspect", count=3), length=400, seed=0)
        members = members_of(coding, length=400, used=None)
        bounds = shape_bounds(members, sizes, views)
        for bucket, count in enumerate(members.counts):
            readable = sizes(members.select(bucket, np.arange(count)))
            readable = readable[readable[:, 0] > 0]
            for scale, table in enumerate(program.scales):
                sides = output_sizes(table, *readable.T)
                largest = [-(-int(side.max()) // program.multiple_of) * program.multiple_of for side in sides]
                assert [int(bound[bucket, scale]) for bound in bounds] == largest


def test_the_shape_of_a_step_is_the_largest_of_its_images():
    sizes = ImageSizes(np.array([(30, 40), (40, 30), (0, 0), (20, 21), (3000, 2)], np.int32))
    program = compile_view(hr.RandomScale((10, 20), multiple_of=8))
    views = StepViews(tables=program.scales, output=None, sizes=sizes, multiple_of=8)
    view = views.of(1, np.array([0, 3]), lambda row, of_all: np.array([], np.int64))
    assert view.size == (24, 32)
    assert view.ops[-1, :3].tolist() == [4, 24, 32]
    assert view.ops[0, :2].tolist() == [2, 20]
    asked = []
    stood_in = views.of(0, np.array([0, 2, 4]), lambda row, of_all: asked.append(row) or np.array([4, 1, 0]))
    assert stood_in.size == (16, 16)
    assert asked == [1, 2]


@given(st.integers(0, 2**32 - 1), st.integers(1, 700), st.sampled_from([0, 700, 1000]))
def test_sizes_are_those_of_plain_arithmetic(seed, short, long_max):
    heights, widths = np.random.default_rng(seed).integers(1, 3000, (2, 500)).astype(np.int32)
    table = np.zeros((1, 10))
    table[0, :3] = 2, short, long_max
    expected = []
    for height, width in zip(heights.tolist(), widths.tolist(), strict=True):
        try:
            across, down = short_side_size(width, height, short, long_max)
        except ViewError:
            across, down = 0, 0
        expected.append((down, across) if down * across <= hr.Limits().max_pixels else (0, 0))
    assert list(zip(*(side.tolist() for side in output_sizes(table, heights, widths)), strict=True)) == expected


def test_images_that_no_view_can_make_do_not_count():
    table = compile_view(hr.Resize(30, max_size=40)).ops
    heights, widths = np.array([100, 1, 50], np.int32), np.array([100, 200, 100], np.int32)
    assert [side.tolist() for side in output_sizes(table, heights, widths)] == [[30, 0, 20], [30, 0, 40]]


# --- plans ---


def test_without_buckets_all_samples_are_one():
    made = plan(sized(SIZES), view=hr.RandomScale((10, 20)), batch_size=3)
    assert isinstance(made.members, OneBucket)
    assert sorted(sample for step in range(made.steps) for sample in made.batch(0, step).samples) == list(range(8))
    assert made.grouping == "scales 10 20 long_max None"


def test_tokens_count_as_the_longest_of_their_bucket():
    dataset = sized(SIZES, tokens=[3, 3, 4, 10, 9, 8, 10, 7])
    buckets = hr.Buckets("length", source="tokens", edges=[5])
    made = plan(dataset, buckets=buckets, batch_size=hr.Budget(tokens=20), images=False)
    batches = [made.batch(0, step).samples for step in range(made.steps)]
    assert sorted(len(batch) for batch in batches) == [1, 2, 2, 3]
    assert made.capacity.of(np.array([0]), np.array([0])) == 5


def test_a_budget_of_all_ranks_is_what_counts():
    buckets = hr.Buckets("aspect", count=3)
    plans = [
        plan(
            sized(SIZES * 9),
            view=hr.RandomScale((10, 20)),
            buckets=buckets,
            batch_size=hr.Budget(pixels=12_000 // world_size, rank_multiple=6),
            world_size=world_size,
        )
        for world_size in (1, 2, 3, 6)
    ]
    assert len({(made.steps, made.global_batch, made.grouping) for made in plans}) == 1
    assert "budget 12000 pixels over all ranks, rank_multiple 6" in plans[0].grouping


def test_a_budget_smaller_than_a_sample_says_what_is_needed():
    given = {"view": hr.Resize(20), "buckets": hr.Buckets("aspect", edges=[1, 2]), "world_size": 2}
    with pytest.raises(
        hr.HeadraceError,
        match=r"room for 2 samples over 2 ranks in a batch of bucket 0 \(aspect to below 1\), whose largest is "
        r"60 x 20 \(height x width\) = 1200 pixels: at least pixels=1200 a rank, got 1199; raise it",
    ):
        plan(sized(SIZES), batch_size=hr.Budget(pixels=1199), **given)
    made = plan(sized(SIZES), batch_size=hr.Budget(pixels=1200), **given)
    for batch in (made.batch(0, step) for step in range(made.steps)):
        assert len(batch.samples) * batch.view.size[0] * batch.view.size[1] <= 1200


BUDGET = hr.Budget(pixels=10_000)


def test_a_bucket_of_fewer_samples_than_ranks():
    """Seven landscapes and one portrait, for four ranks: it joins a neighbour, or three ranks have nothing of it."""
    dataset = sized([(30, 40)] * 7 + [(40, 30)])
    edges, kinds = hr.Buckets("aspect", edges=[1]), hr.Buckets("orientation")
    joined = plan(dataset, buckets=edges, batch_size=1, world_size=4)
    assert (joined.steps, joined.empty_parts) == (2, 0)
    short = plan(dataset, buckets=kinds, batch_size=1, world_size=4)
    assert (short.steps, short.empty_parts) == (3, 4)
    dropped = plan(dataset, buckets=kinds, batch_size=1, world_size=4, remainder="drop")
    assert (dropped.steps, dropped.left_out) == (1, 4)
    wrapped = plan(dataset, buckets=kinds, batch_size=1, world_size=4, remainder="wrap")
    assert (wrapped.steps, wrapped.repeated, wrapped.empty_parts) == (3, 4, 0)
    assert [7] * 4 in [replace(wrapped, world_size=1, rank=0).batch(0, step).samples.tolist() for step in range(3)]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"buckets": "aspect"}, r"buckets: expected hr.Buckets\(…\) or None, got 'aspect'"),
        ({"buckets": hr.Buckets("length", source="what")}, "source to be a column .* got 'what'; it has image, height"),
        (
            {"buckets": hr.Buckets("aspect"), "images": False},
            "by='aspect' needs an image field that follows the Loader's view, got none; name",
        ),
        (
            {"batch_size": BUDGET, "images": False},
            "pixels needs an image field that follows the Loader's view, got none",
        ),
        ({"batch_size": hr.Budget(tokens=9)}, r"tokens needs buckets=hr.Buckets\('length', source=…\), .* got None"),
        ({"batch_size": hr.Budget(bytes=9), "buckets": hr.Buckets("size")}, "bytes needs buckets"),
        (
            {"batch_size": hr.Budget(pixels=9999, rank_multiple=3), "world_size": 2},
            "rank_multiple to be a multiple of the world size 2, got 3; take a multiple of every world size",
        ),
        (
            {"view": hr.RandomScale((10, 20)), "shuffle": False},
            "shuffle: expected True with a RandomScale",
        ),
        ({"buckets": hr.Buckets("size"), "batch_size": 0}, "batch_size: expected an int from 1"),
        ({"buckets": hr.Buckets("size"), "batch_size": 9, "remainder": "drop"}, "the 2 samples of the largest bucket"),
        ({"buckets": hr.Buckets(lambda sample: float("nan"))}, "a category, got nan for sample 's0'; for numbers"),
        ({"buckets": hr.Buckets(lambda sample: [1])}, r"hashable category, got \[1\] for sample 's0'; for numbers"),
        ({"buckets": hr.Buckets(lambda sample: "x", count=2)}, "return a number, .* got 'x' for sample 's0'"),
        ({"buckets": hr.Buckets(lambda sample: float("nan"), count=2)}, "at least one sample whose bucket is known"),
    ],
)
def test_what_does_not_go_together_is_refused(options, says):
    with pytest.raises(hr.HeadraceError, match=says):
        plan(sized(SIZES), **options)


def test_an_error_of_a_function_names_the_sample():
    with pytest.raises(KeyError) as caught:
        plan(sized(SIZES), buckets=hr.Buckets(lambda sample: sample["nothing"]))
    assert caught.value.__notes__ == ["in by= of Buckets, for sample 's0'"]


def test_too_many_categories_are_refused():
    dataset = sized([(100, 100 + number) for number in range(5000)])
    for buckets in (hr.Buckets("size"), hr.Buckets(lambda sample: sample["width"])):
        with pytest.raises(hr.HeadraceError, match="at most 4096 different categories, got more; give count or edges"):
            plan(dataset, buckets=buckets)


def test_another_column_may_tell_images_apart():
    assert grouped(sized(SIZES), hr.Buckets("orientation", source="image"), images=False) == [
        [0, 2, 3, 5, 6],
        [1, 4, 7],
    ]


# --- one shape and one cost ---


def photographs():
    """Sizes such as ADE20K's: mostly 4:3 and 3:2, more landscapes, some large."""
    rng = np.random.default_rng(2017)
    ratio = np.where(rng.random(20_210) < 0.75, rng.choice([4 / 3, 1.5], 20_210), rng.uniform(1, 2, 20_210))
    short = np.where(rng.random(20_210) < 0.9, rng.integers(256, 800, 20_210), rng.integers(1000, 2400, 20_210))
    sizes = np.stack([short, np.round(short * ratio)], axis=1)
    return np.where((rng.random(20_210) < 0.72)[:, None], sizes, sizes[:, ::-1]).astype(np.int32)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("world_size", [2, pytest.param(8, marks=pytest.mark.long), 64])
@pytest.mark.parametrize("batch_size", [2, hr.Budget(pixels=2 * 600 * 1000)], ids=["samples", "pixels"])
def test_ranks_cost_the_same_and_little_is_filled_up(world_size, batch_size):
    sizes = photographs()
    view = hr.RandomScale((300, 375, 450, 525, 600), long_max=1000)
    made = plan(
        sized(sizes), view=view, buckets=hr.Buckets("aspect", count=12), batch_size=batch_size, world_size=world_size
    )
    alone = replace(made, world_size=1, rank=0)  # the same batches as a whole
    slowest, real, padded = [], 0, 0
    for step in range(0, made.steps, max(1, made.steps // 300)):
        part, whole = made.batch(0, step), alone.batch(0, step)
        assert part.view.size == whole.view.size
        # The last rank's part is the largest of a batch that is not a multiple of the ranks.
        largest = len(replace(made, rank=world_size - 1).batch(0, step).samples)
        slowest.append(largest * world_size / len(whole.samples))
        sides = output_sizes(whole.view.ops[:-1], *sizes[whole.samples].T)
        real += int((sides[0] * sides[1]).sum())
        padded += whole.view.size[0] * whole.view.size[1] * len(whole.samples)
    assert np.mean(slowest) <= 1.02
    assert 1 - real / padded <= 0.08


# --- descriptions ---


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"by": "width"}, r"expected by to be one of \('aspect', .*\) or a function of a sample, got 'width'"),
        (
            {"by": "aspect", "count": 3, "edges": [1]},
            r"expected count or edges, got count=3 and edges=\[1\]",
        ),
        ({"by": "orientation", "count": 2}, "by='orientation' has two buckets"),
        ({"by": "aspect", "count": 0}, "count to be an int from 1 to 4096, got 0"),
        ({"by": "aspect", "count": True}, "got True"),
        ({"by": "aspect", "edges": [2, 1]}, r"edges to be 1 to 4095 ascending numbers, each once, got \[2, 1\]"),
        ({"by": "aspect", "edges": [1, 1]}, "each once"),
        ({"by": "aspect", "edges": []}, "ascending numbers"),
        ({"by": "aspect", "edges": [float("nan")]}, "ascending numbers"),
        ({"by": "aspect", "edges": [10**400]}, "ascending numbers"),
        ({"by": "aspect", "edges": 1.5}, "ascending numbers"),
        ({"by": "length"}, "by='length' needs source="),
        ({"by": len, "source": "text"}, "a function is given all columns; leave source='text' out"),
    ],
)
def test_buckets_that_cannot_be_are_refused(arguments, says):
    with pytest.raises(hr.HeadraceError, match=f"Buckets: .*{says}|{says}"):
        hr.Buckets(**arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "expected one of pixels, tokens and bytes, got none"),
        ({"pixels": 5, "bytes": 6}, r"got \{'pixels': 5, 'bytes': 6\}"),
        ({"pixels": 0}, "expected pixels to be an int of at least 1, got 0"),
        ({"tokens": 2.5}, "expected tokens to be an int"),
        ({"tokens": 2, "rank_multiple": 0}, "expected rank_multiple to be an int of at least 1, got 0"),
    ],
)
def test_budgets_that_cannot_be_are_refused(arguments, says):
    with pytest.raises(hr.HeadraceError, match=f"Budget: {says}|{says}"):
        hr.Budget(**arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"short_sides": 300}, "short_sides to be ascending whole numbers of pixels, each once, got 300"),
        ({"short_sides": ()}, "short_sides"),
        ({"short_sides": (300, 300)}, "each once"),
        ({"short_sides": (300.5,)}, "whole numbers"),
        ({"short_sides": (300, 600), "long_max": 599}, "long_max to be None or an int of at least 600, got 599"),
        ({"short_sides": (300,), "multiple_of": 0}, "multiple_of to be an int from 1 to 4096"),
        ({"short_sides": (300,), "flip": 2}, "flip to be a probability"),
        ({"short_sides": (300,), "fill": 256}, "fill to be an int 0..255"),
    ],
)
def test_scales_that_cannot_be_are_refused(arguments, says):
    with pytest.raises(hr.HeadraceError, match=says):
        hr.RandomScale(**arguments)


def test_a_random_scale_comes_first():
    with pytest.raises(hr.HeadraceError, match=r"view: expected RandomScale\(.*\) to come first, got RandomCrop"):
        compile_view([hr.RandomCrop(8), hr.RandomScale((10, 20))])


def test_a_random_scale_is_a_table_for_each_scale():
    program = compile_view([hr.RandomScale((10, 20), long_max=30, flip=0.5, fill=7), hr.RandomVerticalFlip()])
    assert [table[:, 0].tolist() for table in program.scales] == [[2, 7, 8]] * 2
    assert [table[0, 1:3].tolist() for table in program.scales] == [[10, 30], [20, 30]]
    assert (program.output_size, program.fill) == (None, (7,))
    cropped = compile_view([hr.RandomScale((10, 20), multiple_of=4), hr.RandomCrop(8, pad_if_needed=True, fill=3)])
    assert (cropped.output_size, cropped.fill, cropped.multiple_of) == ((8, 8), (3,), 4)
