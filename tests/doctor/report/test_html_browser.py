"""The page in a browser: it fits a phone and a wide screen, light and dark, and does nothing but be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CHROMIUM, DRIVER, PHONE, WHY_NOT, WIDE, Browser, browser
from html_pages import calm_page, large_page, made_page
from made_reports import made_prescription, made_ranks, made_session
from PIL import Image
from test_terminal_report import HOSTILE, _spoilt

from headrace.doctor.report.html_page import html_page
from headrace.doctor.report.view import report_view

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason=WHY_NOT),
    pytest.mark.leaks(reason="one Chromium serves them all, and has processes come and go"),
]

OVERFLOW = """
const wide = document.documentElement.clientWidth;
const inside = tag => tag.closest("pre, .skip, thead") !== null;
return [...document.querySelectorAll("body *")]
  .filter(tag => !inside(tag) && tag.getClientRects().length && tag.getBoundingClientRect().right > wide + 1)
  .map(tag => tag.outerHTML.slice(0, 120));
"""
COVERED = """
return [...document.querySelectorAll(".plot, .bar")].map(svg => svg.getBoundingClientRect())
  .filter(box => box.width < 60 || box.height < 10).length;
"""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as one:
        yield one


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    evil = "".join(HOSTILE[name] for name in HOSTILE if name != "bytes") + "<script>alert(1)</script>" + "W" * 400
    spoilt = (_spoilt(one(), evil) for one in (made_session, made_ranks, made_prescription))
    written = {"made": made_page(), "calm": calm_page(), "large": large_page(steps=300)}
    written["hostile"] = html_page(report_view(*spoilt, again=evil))
    for name, page in written.items():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in written}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("width", [320, *(pytest.param(one, marks=pytest.mark.long) for one in (PHONE, 768)), WIDE])
@pytest.mark.parametrize("name", ["made", "calm", "large", "hostile"])
def test_fits_the_width_of_the_screen(chromium: Browser, pages: dict[str, Path], name: str, width: int) -> None:
    chromium.open(pages[name], width=width)
    assert chromium.run("return document.documentElement.clientWidth") >= width - 20
    assert chromium.run(OVERFLOW) == []
    assert chromium.run("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert chromium.run(COVERED) == 0


@pytest.mark.parametrize("name", ["made", "calm", "hostile"])
def test_complains_of_nothing_and_asks_for_nothing(chromium: Browser, pages: dict[str, Path], name: str) -> None:
    chromium.requested()
    chromium.open(pages[name])
    chromium.run("document.body.getBoundingClientRect()")
    assert chromium.told() == []
    assert chromium.requested() == [pages[name].as_uri()]


def test_what_somebody_puts_into_it_is_neither_loaded_nor_run(chromium: Browser, tmp_path: Path) -> None:
    """Were a text to get past the escapes, the policy would still hold it."""
    hole = "<img src='http://127.0.0.1:9/x'><script>document.title = 'owned'</script><b style='color: red'>b</b>"
    page = tmp_path / "hole.html"
    page.write_text(made_page().replace("</main>", f"{hole}</main>"), encoding="utf-8")
    chromium.open(page)
    chromium.requested()
    assert chromium.run("return document.title") != "owned"
    assert len([message for message in chromium.told() if "Content Security Policy" in message]) == 3


@pytest.mark.parametrize("width", [PHONE, WIDE])
def test_is_light_or_dark_as_readers_are(chromium: Browser, pages: dict[str, Path], tmp_path: Path, width: int) -> None:
    light, dark = (_shot(chromium, pages["made"], tmp_path, width, scheme) for scheme in ("light", "dark"))
    assert light > 225
    assert dark < 60


def test_prints_on_white_with_its_colours(chromium: Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages["made"], media="print")
    ground = chromium.run("return getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(255, 255, 255)"
    assert chromium.run("return getComputedStyle(document.querySelector('nav')).display") == "none"
    assert chromium.pdf().startswith(b"%PDF")


def test_paper_is_white_for_those_who_read_in_the_dark(chromium: Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages["made"], media="print", scheme="dark")
    assert chromium.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def _shot(chromium: Browser, page: Path, folder: Path, width: int, scheme: str) -> float:
    """Mean lightness of its first screen, of 255."""
    chromium.open(page, width=width, scheme=scheme)
    path = folder / f"{width}-{scheme}.png"
    chromium.shot(path, height=900)
    with Image.open(path) as image:
        grey = image.convert("L").resize((1, 1), Image.Resampling.BOX)
        return float(grey.getpixel((0, 0)))  # type: ignore[arg-type]
