"""Bars without gaps, and colours that can be told from what they lie on."""

from __future__ import annotations

import re

import pytest

from headrace.doctor.report.html_page import FOLDER, stacked
from headrace.doctor.report.view import Segment


def test_pieces_lie_end_to_end() -> None:
    pieces = [Segment("data wait", 1, "a"), Segment("backward", 0, "none"), Segment("optimizer", 3, "b")]
    shown = str(stacked(pieces, top=4, label="said", labelled=True))
    assert re.findall(r'x="([\d.]+%)" width="([\d.]+%)"', shown) == [("0%", "25%"), ("25%", "75%")]
    assert re.findall(r">(\d+ %)<", shown) == ["25 %", "75 %"]


def test_texts_in_charts_are_escaped() -> None:
    shown = str(stacked([Segment("data wait", 1, "</svg><script>\x1b")], top=1, label='"><b>'))
    assert 'aria-label="&#34;&gt;&lt;b&gt;"' in shown
    assert "<title>&lt;/svg&gt;&lt;script&gt;\\x1b</title>" in shown
    long = str(stacked([Segment("data wait", 1, "x" * 400)], top=1, label="<i>"))
    assert f"<title>{'x' * 299}…</title>" in long


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
