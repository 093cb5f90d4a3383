"""Which source stands where, against a slow walk; exact shares, and epochs that are long enough."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from twin import rng as twin

from headrace.errors import UsageError
from headrace.plan import Mixture, SourceBatches, SourceSamples, UniformPlan, counts_of
from headrace.plan.mixture import MAX_WINDOW

COUNTS = st.lists(st.integers(1, 9), min_size=1, max_size=5).map(tuple)
SEEDS = st.integers(0, 2**64 - 1)


def walked(counts, seed, windows):
    """The source at each place, found by walking: a line for each source, and a step up where its error overflows."""
    order = sorted(range(len(counts)), key=lambda source: -counts[source])
    for window in range(windows):
        wides = [sum(counts[source] for source in order[level:]) for level in range(len(order))]
        errors = []
        for level, wide in enumerate(wides):
            key = twin.hash64(twin.hash64(seed, level), wide)
            errors.append((twin.permute(1 << 48, key, window) >> 16) * wide >> 32)
        for _ in range(sum(counts)):
            for level, source in enumerate(order):
                errors[level] += counts[source]
                if errors[level] >= wides[level]:
                    errors[level] -= wides[level]
                    yield source
                    break


@given(counts=COUNTS, seed=SEEDS, start=st.integers(0, 40))
def test_agrees_with_a_walk(counts, seed, start):
    mixture = Mixture(counts, seed)
    expected = list(walked(counts, seed, 4))
    start = min(start, len(expected))
    sources, numbers = mixture.between(start, len(expected))
    assert sources.tolist() == expected[start:]
    assert numbers.tolist() == [expected[:at].count(expected[at]) for at in range(start, len(expected))]
    assert mixture.taken(start) == [expected[:start].count(source) for source in range(len(counts))]


@given(counts=COUNTS, seed=SEEDS, window=st.integers(0, 10**9))
def test_shares_are_exact_in_every_window(counts, seed, window):
    mixture = Mixture(counts, seed)
    sources, _ = mixture.between(window * mixture.window, (window + 1) * mixture.window)
    assert np.bincount(sources, minlength=len(counts)).tolist() == list(counts)


@given(counts=COUNTS, seed=SEEDS, start=st.integers(0, 100), length=st.integers(0, 100))
def test_any_stretch_is_nearly_exact(counts, seed, start, length):
    mixture = Mixture(counts, seed)
    sources, _ = mixture.between(start, start + length)
    for source, share in enumerate(mixture.shares):
        assert abs((sources == source).sum() - length * share) <= 2 * mixture.deviations[source]


def test_two_sources_are_never_off_by_a_whole_one():
    assert Mixture((7, 2), 0).deviations == [1, 1]
    assert Mixture((5,), 0).deviations == [0]


def test_windows_are_turned():
    """A source does not keep its place in a batch, and a seed has its own turns."""
    assert len({tuple(Mixture((3, 1), 0).between(4 * k, 4 * k + 4)[0]) for k in range(50)}) == 4
    assert Mixture((3, 1), 0).between(0, 100)[0].tolist() != Mixture((3, 1), 1).between(0, 100)[0].tolist()


@given(counts=COUNTS, seed=SEEDS, data=st.data())
def test_epochs_are_long_enough_and_not_much_longer(counts, seed, data):
    mixture = Mixture(counts, seed)
    lengths = [data.draw(st.integers(1, 60)) for _ in counts]
    a_step = data.draw(st.integers(1, 12))
    needed = [length / share for length, share in zip(lengths, mixture.shares, strict=True)]
    for until, each, fit in (("largest", all, max), ("smallest", any, min)):
        steps = mixture.steps_of_epoch(lengths, until=until, positions_a_step=a_step)
        for epoch in range(8):
            first, last = (np.array(mixture.taken((epoch + more) * steps * a_step)) for more in (0, 1))
            assert each((last - first >= lengths).tolist())
        assert fit(needed) <= steps * a_step < fit(needed) + mixture.window * a_step


def test_a_whole_dataset_by_weights_of_its_size_is_an_epoch():
    counts = counts_of({"a": 300, "b": 100})
    assert Mixture(counts, 0).steps_of_epoch([300, 100], until="largest", positions_a_step=8) == 50


def test_a_position_beyond_counting_is_refused():
    with pytest.raises(UsageError, match="expected an epoch below"):
        Mixture((1, 1), 0).taken(1 << 62)


# --- weights ---


@pytest.mark.parametrize(
    ("weights", "counts"),
    [
        ((3, 1), (3, 1)),
        ((0.7, 0.3), (7, 3)),
        ((70, 30), (7, 3)),
        ((1 / 3, 2 / 3), (1, 2)),
        ((Fraction(1, 6), Fraction(1, 4)), (2, 3)),
        ((np.float64(0.1), np.int64(3)), (1, 30)),
        ((1e-5, 1), (1, 100_000)),
        ((5,), (1,)),
    ],
)
def test_weights_become_whole_numbers(weights, counts):
    assert counts_of(dict(enumerate(weights))) == counts


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=6))
def test_any_weights_are_kept_closely(weights):
    counts = counts_of(dict(enumerate(weights)))
    window = sum(counts)
    assert window <= MAX_WINDOW
    assert min(counts) >= 1
    for count, weight in zip(counts, weights, strict=True):
        assert count / window == pytest.approx(weight / sum(weights), rel=3e-9, abs=2**-29)


@pytest.mark.parametrize(
    ("weight", "says"),
    [
        (0, "expected a number above 0, got 0; leave the source out"),
        (0.0, "expected a number above 0, got 0.0; leave the source out"),
        (-1, "expected a finite number above 0, got -1"),
        (float("nan"), "expected a finite number above 0, got nan"),
        (float("inf"), "expected a finite number above 0, got inf"),
        (True, "expected a number above 0, got True"),
        ("1", "expected a number above 0, got '1'"),
        (None, "expected a number above 0, got None"),
        (1e-10, "expected a share of at least 1 in 1073741824, got 1e-10; leave the source out, or raise its weight"),
    ],
)
def test_weights_that_are_none(weight, says):
    with pytest.raises(UsageError) as caught:
        counts_of({"a": 1, "b": weight})
    assert str(caught.value) == f"weights['b']: {says}"


# --- what a source's feed makes ---


def test_a_sources_own_batches_are_numbered_through_its_epochs():
    plan = UniformPlan(length=10, batch_size=4, seed=3)
    numbered = SourceBatches(plan, steps=7)
    for number in range(7):
        mine, own = numbered.batch(5, number), plan.batch(number // 3, number % 3)
        assert (mine.epoch, mine.step, mine.samples.tolist()) == (own.epoch, own.step, own.samples.tolist())


@given(length=st.integers(1, 20), counts=st.tuples(st.integers(1, 4), st.integers(1, 4)), ranks=st.sampled_from([1, 2]))
def test_a_sources_samples_come_one_epoch_of_it_after_another(length, counts, ranks):
    """Also where a batch has more of them than the source: each sample once before any comes again."""
    mixture, global_batch, steps = Mixture(counts, 1), 6, 5
    samples, passes, epochs = [], [], 3
    for epoch in range(epochs):
        for step in range(steps):
            for rank in range(ranks):
                plan = UniformPlan(length=length, batch_size=global_batch // ranks, rank=rank, world_size=ranks, seed=2)
                batch = SourceSamples(plan, steps, mixture, 0).batch(epoch, step)
                assert batch.positions.tolist() == list(range(len(samples), len(samples) + len(batch.samples)))
                samples += batch.samples.tolist()
                passes += batch.passes.tolist()
    assert len(samples) == mixture.taken(epochs * steps * global_batch)[0]
    alone = UniformPlan(length=length, batch_size=length, seed=2)
    expected = [sample for epoch in range(len(samples) // length + 1) for sample in alone.batch(epoch, 0).samples]
    assert samples == expected[: len(samples)]
    assert passes == [position // length for position in range(len(samples))]
