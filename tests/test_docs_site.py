"""The lists of pages and of public names, and links between pages; `make docs` builds the site from them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs_pages import DOCS, section
from site_pages import FENCE, LINK, ROOT, for_site, linked_files, reference, sections

import headrace

PAGES = [*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md"))]


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files_and_headings(page: Path) -> None:
    text = FENCE.sub("", page.read_text())
    for link in LINK.finditer(re.sub(r"`[^`\n]*`", "", text)):
        target = page.parent / link[2]
        assert target.exists(), link[0]
        assert len(link[3]) == 1 or link[3][1:-1] in anchors(target), link[0]
    own = re.findall(r"\]\(#([^)]*)\)", text)
    assert set(own) <= anchors(page)


def test_the_list_of_pages_is_complete() -> None:
    listed = {page for pages in sections().values() for page in pages}
    assert {page for page in DOCS.rglob("*.md") if page != DOCS / "README.md"} <= listed


def test_the_reference_has_every_public_name_once() -> None:
    names = [name for names in reference().values() for name in names]
    assert sorted(names) == sorted([*headrace.__all__, "errors"])
    assert re.findall(r"^\| `(\w+)` \| *\|", section("reference.md"), re.MULTILINE) == []


def test_the_stub_has_the_defaults_of_limits() -> None:
    limits = headrace.Limits()
    stub = Path(headrace.__file__).with_name("_core.pyi").read_text().partition("class Limits:")[2]
    defaults = re.findall(r"^        (max_\w+): \w+ = ([\d_.]+),$", stub.partition(") -> None")[0], re.MULTILINE)
    assert {name: float(value) for name, value in defaults} == {
        name: getattr(limits, name) for name in dir(limits) if name.startswith("max_")
    }


def test_a_page_is_adapted_to_the_site() -> None:
    code = "```\nsaid:\n- [a](../examples/clip.py)\n```\n"
    page = "See [a script](../examples/clip.py) and [text](text.md#packed-texts):\n- one\n" + code
    adapted = for_site(page, DOCS / "loader.md")
    assert "(source/examples/clip.py.md)" in adapted
    assert "(text.md#packed-texts):\n\n- one\n" in adapted
    assert adapted.endswith(code)
    assert "(../source/examples/clip.py.md)" in for_site("[a](../../examples/clip.py)", DOCS / "doctor" / "README.md")
    assert list(linked_files(DOCS / "loader.md", "[a](nowhere.md) [b](../../outside) [c](https://x.org/a.md)")) == []
