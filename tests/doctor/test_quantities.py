"""Figures in words: digits, units, and dashes for what was not measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.doctor.measure import options_for
from headrace.doctor.quantities import about, counted, duration, number, percent, size, sizes

SECONDS = {"µs": 1e-6, "ms": 1e-3, "s": 1.0}


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (None, "–"),
        (0, "0 ms"),
        (4.84, "4.8 µs"),
        (48, "48 µs"),
        (999.4, "999 µs"),
        (999.6, "1.0 ms"),
        (41_249, "41.2 ms"),
        (99_949, "99.9 ms"),
        (99_950, "100 ms"),
        (412_000, "412 ms"),
        (999_499, "999 ms"),
        (999_500, "1.0 s"),
        (3_420_000, "3.4 s"),
        (125_000_000, "2 min 5 s"),
        (3_660_000_000, "1 h 1 min"),
    ],
)
def test_durations(us: float | None, text: str) -> None:
    assert duration(us) == text


@given(st.floats(min_value=0.1, max_value=99e6))
def test_a_duration_says_what_it_was_to_within_half_of_its_last_digit(us: float) -> None:
    figure, unit = duration(us).split()
    digit = 0.1 if "." in figure else 1.0
    assert float(figure) * SECONDS[unit] == pytest.approx(us * 1e-6, abs=digit * SECONDS[unit] * 0.501)


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (None, "–"),
        (0.0, "0 %"),
        (0.0001, "<0.1 %"),
        (0.0042, "0.4 %"),
        (0.0834, "8.3 %"),
        (0.0994, "9.9 %"),
        (0.0996, "10 %"),
        (0.714, "71 %"),
        (1.0, "100 %"),
    ],
)
def test_shares(part: float | None, text: str) -> None:
    assert percent(part) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "–"),
        (0, "0 B"),
        (812, "812 B"),
        (1_400, "1.4 kB"),
        (999_400, "999 kB"),
        (999_600, "1.0 MB"),
        (23e9, "23 GB"),
        (4.2e12, "4.2 TB"),
    ],
)
def test_sizes(count: float | None, text: str) -> None:
    assert size(count) == text


def test_a_part_of_a_size_names_a_common_unit_once() -> None:
    assert sizes(12e9, 80e9) == "12 of 80 GB"
    assert sizes(98e3, 8e9) == "98 kB of 8.0 GB"
    assert sizes(None, 8e9) == "– of 8.0 GB"


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (3.0, "3"), (1.94, "1.9"), (0.784, "0.78"), (36.2, "36.2"), (1204.4, "1,204")]
)
def test_numbers(value: float | None, text: str) -> None:
    assert number(value) == text


def test_counts() -> None:
    assert [counted(1, "worker"), counted(2, "pass"), counted(0, "batch")] == ["1 worker", "2 passes", "0 batches"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "about 5 s"), (43, "about 45 s"), (89, "about 90 s"), (130, "about 2 min")]
)
def test_an_estimate_has_no_digits_that_it_does_not_bear(seconds: float, text: str) -> None:
    assert about(seconds) == text


@pytest.mark.parametrize(("steps", "observed"), [(20, None), (21, 3), (29, 8), (35, 11), (93, 40)])
def test_options_for_a_short_run_leave_room_for_a_replay(steps: int, observed: int | None) -> None:
    assert options_for(steps) == ("" if observed is None else f"--steps {observed}")
