"""The line through measured peaks and the sizes it leads to, against memory that is known as a function."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.device.memory_search import CLOSE, GROWTH, MemoryStep, fit_line, largest_that_fits, next_samples

MeasuredPeak = partial(MemoryStep, (1,))
MOST = 1 << 20
ENOUGH = 60


def searched(peak_of, *, limit, most=MOST, capacity=None):
    """Sizes in the order in which they are tried, with their peaks; beyond `capacity` memory runs out."""
    measured, samples = [], 1
    while samples is not None:
        peak = peak_of(samples)
        measured.append(MeasuredPeak(samples, None if capacity is not None and peak > capacity else peak))
        samples = next_samples(measured, limit_bytes=limit, most=most)
        assert len(measured) < ENOUGH
    return measured


def test_a_line_through_points_on_it():
    line = fit_line([MeasuredPeak(n, 1000 + 30 * n) for n in (1, 2, 4)] + [MeasuredPeak(99, None)])
    assert line.fixed_bytes == pytest.approx(1000)
    assert line.bytes_per_sample == pytest.approx(30)
    assert line.residual_bytes == pytest.approx(0, abs=1e-6)
    assert line.samples_at(1300) == pytest.approx(10)


def test_the_residual_is_the_largest_distance():
    assert fit_line([MeasuredPeak(1, 10), MeasuredPeak(2, 26), MeasuredPeak(3, 30)]).residual_bytes == pytest.approx(4)


@given(fixed=st.integers(0, 10**9), slope=st.integers(1000, 10**8), room=st.integers(1, 5000))
def test_of_linear_memory_the_largest_size_is_found_without_running_out(fixed, slope, room):
    limit = fixed + slope * room + slope // 2
    measured = searched(lambda samples: fixed + slope * samples, limit=limit, capacity=limit)
    found = largest_that_fits(measured, limit_bytes=limit)
    assert room / (1 + CLOSE) - 1 <= found <= room
    assert room == 1 or all(one.peak_bytes is not None for one in measured)  # one point makes no line
    assert len(measured) <= room.bit_length() + 3


@given(square=st.integers(1, 10**6), room=st.integers(1, 5000))
def test_of_memory_that_grows_faster_a_size_is_found_that_ran(square, room):
    limit = 10**6 + square * room * room
    measured = searched(lambda samples: 10**6 + square * samples * samples, limit=limit)
    found = largest_that_fits(measured, limit_bytes=limit)
    assert MeasuredPeak(found, 10**6 + square * found * found) in measured
    assert 0.9 * room - 1 <= found <= room


@given(data=st.data(), slope=st.integers(10**4, 10**6), room=st.integers(1, 2000))
def test_noise_leads_to_no_size_that_does_not_fit(data, slope, room):
    """Of up to 5 % of the peak, either way."""
    noisy = lambda samples: int(slope * samples * data.draw(st.floats(0.95, 1.05)))  # noqa: E731
    measured = searched(noisy, limit=slope * room)
    found = largest_that_fits(measured, limit_bytes=slope * room)
    if found is None:
        assert room == 1
    else:
        assert {one.samples: one.peak_bytes for one in measured}[found] <= slope * room
        assert found <= room / 0.95


@given(jump_at=st.integers(2, 500), room=st.integers(2, 2000))
def test_a_jump_is_stepped_back_from(jump_at, room):
    """Such as another algorithm that takes its own workspace."""
    peak = lambda samples: samples * 100 + (10**7 if samples >= jump_at else 0)  # noqa: E731
    limit = 100 * room
    found = largest_that_fits(searched(peak, limit=limit, capacity=limit), limit_bytes=limit)
    best = min(room, jump_at - 1)
    assert best / (1 + CLOSE) - 1 <= found <= best


def test_sizes_grow_step_by_step_although_the_line_leads_further():
    tried = [one.samples for one in searched(lambda samples: samples, limit=1000)]
    assert all(after <= GROWTH * before for before, after in pairwise(tried))
    assert tried[-1] == 1000


def test_memory_that_does_not_grow_leads_to_the_most():
    assert searched(lambda samples: 7, limit=10, most=100)[-1].samples == 100


def test_nothing_fits():
    assert searched(lambda samples: 11, limit=10) == [MeasuredPeak(1, 11)]
    assert largest_that_fits([MeasuredPeak(1, 11)], limit_bytes=10) is None


def test_a_size_above_one_that_did_not_fit_does_not_count():
    assert largest_that_fits([MeasuredPeak(4, None), MeasuredPeak(8, 3), MeasuredPeak(2, 3)], limit_bytes=10) == 2


def test_from_the_top_down_when_the_top_does_not_fit():
    assert next_samples([MeasuredPeak(64, None)], limit_bytes=10, most=64) == 32
    assert next_samples([MeasuredPeak(64, 10)], limit_bytes=10, most=64) is None
