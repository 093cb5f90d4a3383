"""The pages of docs/, as the site and `docs/llms.txt` list them. Needs nothing beyond the standard library.

`docs/README.md` is the one list of pages: its sections become the site's navigation and those of `llms.txt`.
`docs/reference.md` is the one list of public names, which `generated_pages.py` writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from os.path import relpath
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
"""Link to a file: its opening, the relative path, and an anchor with the closing bracket."""
FENCE = re.compile(r"(^ *(`{3,}).*?^ *\2`*$\n?)", re.DOTALL | re.MULTILINE)
"""Fenced code."""
TIGHT_LIST = re.compile(r"^(?![-*|#> ]|\d+\. )(.+\n)(?=[-*] |\d+\. |\|)", re.MULTILINE)
"""Line of a paragraph directly before a list or a table: GitHub ends the paragraph there, Python-Markdown does not."""


def sections() -> dict[str, list[Path]]:
    """Return the files that each section of `docs/README.md` lists, each file once, in their order."""
    listed: set[Path] = set()
    pages: dict[str, list[Path]] = {}
    for part in re.split(r"^## ", (DOCS / "README.md").read_text(), flags=re.MULTILINE)[1:]:
        title, _, text = part.partition("\n")
        files = [file for file in linked_files(DOCS / "README.md", text) if file.suffix == ".md"]
        if new := [file for file in dict.fromkeys(files) if file not in listed]:
            pages[title] = new
            listed.update(new)
    return pages


def linked_files(page: Path, text: str) -> Iterator[Path]:
    """Yield the files and folders of the repository that a page's text links to."""
    for link in LINK.finditer(text):
        target = (page.parent / link[2]).resolve()
        if target.exists() and target.is_relative_to(ROOT):
            yield target


def site_page(file: Path) -> str | None:
    """Return the site's page for a file of the repository; None: it has none, as pictures, which are copied.

    A page of Markdown is itself. A folder and a Python file have a page that shows their content.
    """
    path = file.relative_to(ROOT).as_posix()
    if file.suffix == ".md":
        return path.removeprefix("docs/")
    return f"source/{path}.md" if file.is_dir() or file.suffix == ".py" else None


def listing(file: Path) -> str:
    """Return the page that shows a Python file, or the files of a folder."""
    head = f"---\nsearch:\n  exclude: true\n---\n# `{file.relative_to(ROOT)}`\n\n"
    if file.is_file():
        return f"{head}````python\n{file.read_text()}````\n"
    names = sorted(inner.name for inner in file.iterdir() if inner.suffix in {".py", ".md"})
    return head + "".join(f"- [`{name}`]({file.name}/{name})\n" for name in names)


def for_site(text: str, page: Path) -> str:
    """Return a page's Markdown as Python-Markdown reads it, with links to files of the repository led to site pages."""
    here = site_page(page) or ""

    def led(link: re.Match[str]) -> str:
        target = next(linked_files(page, link[0]), None)
        uri = None if target is None else site_page(target)
        return link[0] if uri is None else link[1] + relpath(uri, Path(here).parent) + link[3]

    parts = FENCE.split(text)
    prose = (loose(LINK.sub(led, part)) for part in parts[::3])
    code = (*parts[1::3], "")
    return "".join(text for pair in zip(prose, code, strict=True) for text in pair)


def loose(text: str) -> str:
    """Return Markdown with an empty line before each list and table."""
    return TIGHT_LIST.sub(r"\1\n", text)


def llms_txt() -> str:
    """Return `docs/llms.txt` in the form of llmstxt.org: each page with its first sentence."""
    title, summary = _opening((ROOT / "README.md").read_text())
    lines = [f"# {title}\n\n> {summary}\n"]
    for section, pages in sections().items():
        lines.append(f"\n## {section}\n\n")
        for page in pages:
            name, sentence = _opening(page.read_text())
            lines.append(f"- [{name}]({relpath(page, DOCS)}): {sentence}\n")
    return "".join(lines)


def _opening(text: str) -> tuple[str, str]:
    """Return a page's title, and the first sentence of its first paragraph, without links."""
    title = re.search(r"^# (.*)$", text, re.MULTILINE)
    assert title is not None, "expected a title, a line that begins with #"
    body = re.sub(r"^#.*\n", "\n", text[title.end() :], flags=re.MULTILINE)
    blocks = (" ".join(block.split()) for block in body.split("\n\n"))
    paragraph = next(block for block in blocks if block and block[0] not in "`|-")
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", paragraph)
    return title[1], re.split(r"(?<=\.)\s+(?=[A-Z`])", plain)[0].rstrip(":")


def reference() -> dict[str, list[str]]:
    """Return the public names that each section of `docs/reference.md` lists."""
    parts = re.split(r"^## ", (DOCS / "reference.md").read_text(), flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0]: re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE) for part in parts}
