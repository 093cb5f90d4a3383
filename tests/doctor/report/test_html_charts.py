"""Charts: axes from zero with round figures, columns that lose nothing, a queue counted another way, colours that can
be told from what they lie on."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.doctor.report.html.charts import (
    FOLDER,
    MOST_COLUMNS,
    PLOT_PX,
    BarMeasure,
    ColumnChart,
    Layer,
    buckets,
    columns,
    measures,
    round_step,
    stacked,
    time_axis,
)
from headrace.doctor.report.view import Segment

LENGTHS = st.floats(1e-3, 1e12, allow_nan=False)


@given(LENGTHS)
def test_an_axis_begins_at_zero_and_ends_just_above_the_longest(most: float) -> None:
    axis = time_axis(most)
    assert axis.ticks[0] == (0, "0")
    assert axis.top >= most * (1 - 1e-6)
    assert axis.ticks[-2][0] <= most * (1 + 1e-6)
    assert 2 <= len(axis.ticks) <= 6


@given(LENGTHS)
def test_a_time_axis_has_a_unit_of_which_it_holds_one(most_us: float) -> None:
    axis = time_axis(most_us)
    in_unit = most_us / {"s": 1e6, "ms": 1e3, "µs": 1.0}[axis.unit]
    assert in_unit >= 1 or axis.unit == "µs"
    assert axis.top >= most_us * (1 - 1e-6)


@pytest.mark.parametrize(("count", "apart"), [(1, 1), (6, 1), (7, 2), (200, 50), (10_000, 2_000)])
def test_places_are_a_round_number_apart(count: int, apart: int) -> None:
    assert round_step(count, most=6) == apart


@given(st.integers(0, 20_000))
def test_columns_put_neighbours_together_and_leave_none_out(count: int) -> None:
    groups = buckets(count)
    assert [row for group in groups for row in group] == list(range(count))
    assert len(groups) <= MOST_COLUMNS
    assert len({len(group) for group in groups[:-1]}) <= 1


def test_columns_are_stacked_from_zero() -> None:
    layers = [Layer("wait", [10.0, None]), Layer("blue", [30.0, 20.0])]
    shown = str(columns(ColumnChart(layers, ["one", "two"], time_axis(40), [(0.5, "1")], "said")))
    paths = re.findall(r'c-(\w+)" d="([^"]+)"', shown)
    assert [colour for colour, _ in paths] == ["blue", "wait"]  # the highest is drawn first, and the others over it
    tops = [[float(top) for top in re.findall(rf"{PLOT_PX}V([\d.]+)", path)] for _, path in paths]
    assert tops == [[0, PLOT_PX / 2], [0.75 * PLOT_PX]]
    assert re.findall(r"<title>(\w+)</title>", shown) == ["one", "two"]


def test_many_columns_are_one_outline() -> None:
    count = MOST_COLUMNS
    chart = ColumnChart([Layer("sky", [1.0] * count)], [""] * count, time_axis(1), [], "said")
    (path,) = re.findall(r'd="([^"]+)"', str(columns(chart)))
    assert path.count("M") == 1
    assert path.count("h1") == count


def test_a_bar_is_no_longer_than_its_whole() -> None:
    shown = str(measures([BarMeasure("predicted", 50, (40, 120))], top=100, label="said"))
    assert 'x2="100%"' in shown
    assert "120%" not in shown


def test_pieces_lie_end_to_end() -> None:
    pieces = [Segment("data wait", 1, "a"), Segment("backward", 0, "none"), Segment("optimizer", 3, "b")]
    shown = str(stacked(pieces, top=4, label="said", labelled=True))
    assert re.findall(r'x="([\d.]+%)" width="([\d.]+%)"', shown) == [("0%", "25%"), ("25%", "75%")]
    assert re.findall(r">(\d+ %)<", shown) == ["25 %", "75 %"]


def test_texts_in_charts_are_escaped() -> None:
    shown = str(stacked([Segment("data wait", 1, "</svg><script>\x1b")], top=1, label='"><b>'))
    assert 'aria-label="&#34;&gt;&lt;b&gt;"' in shown
    assert "<title>&lt;/svg&gt;&lt;script&gt;\\x1b</title>" in shown
    long = str(columns(ColumnChart([], ["x" * 400], time_axis(1), [(0.5, "<i>")], "said")))
    assert f"<title>{'x' * 299}…</title>" in long
    assert "&lt;i&gt;" in long


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_and_colours_stand_out_from_what_they_lie_on(scheme: str) -> None:
    colours = _colours(scheme)
    grounds = (colours["ground"], colours["panel"])
    for ground in grounds:
        for name in ("text", "soft", "link", "red", "yellow", "green"):
            assert _contrast(colours[name], ground) >= 4.5, (name, ground)
    fills = ("wait", "amber", "sky", "blue", "teal", "purple", "pink", "slate", "other", "olive", "brown")
    for name in fills:
        assert _contrast(colours[name], colours["ground"]) >= 3, name
        assert _contrast(colours["on"], colours[name]) >= 4.5, name
    assert _contrast(colours["more"], colours["more-ground"]) >= 4.5
    assert _contrast(colours["less"], colours["less-ground"]) >= 4.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_waiting_can_be_told_from_computing_without_seeing_red_or_green(scheme: str) -> None:
    """Blue against yellow is what those who see no red or no green have left, and lightness."""
    colours = _colours(scheme)
    for name in ("sky", "blue", "teal", "purple", "slate", "other"):
        assert _yellow(colours["wait"]) - _yellow(colours[name]) >= 60, name


def _colours(scheme: str) -> dict[str, str]:
    light, dark = re.findall(r":root \{(.*?)\}", (FOLDER / "style.css").read_text(encoding="utf-8"), re.DOTALL)[:2]
    found = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6})", light))
    if scheme == "dark":
        found |= dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6})", dark))
    return found


def _contrast(one: str, other: str) -> float:
    """WCAG 2.2, contrast ratio."""
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in _rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _yellow(colour: str) -> float:
    red, green, blue = _rgb(colour)
    return 255 * ((red + green) / 2 - blue)


def _rgb(colour: str) -> list[float]:
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    return [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
