"""What mkdocs calls to build the site: navigation, pages of linked files, the reference, and docstrings.

Runs in the site's own environment, which lacks headrace: mkdocstrings reads the sources without importing them.
"""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from site_pages import DOCS, FENCE, ROOT, for_site, linked_files, listing, loose, reference, sections, site_page

log = logging.getLogger("mkdocs.plugins.site")
MEMBERS = {"Loader", "Data", "Drop-ins", "Modules"}
"""Sections of the reference whose classes have methods to call; other classes are described by their arguments."""
PAGES: dict[str, Path] = {}
"""File of the repository behind each page of the site."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Set the navigation: the start page, and the sections of docs/README.md."""
    nav = {title: [site_page(page) for page in pages] for title, pages in sections().items()}
    nav["Start"].insert(0, "README.md")
    nav["Reference"][1:1] = map(_reference_page, reference())
    config.nav = [{title: pages} for title, pages in nav.items()]
    return config


def _reference_page(section: str) -> str:
    return f"reference/{section.lower()}.md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of files that pages link to and docs/ has no page of, and the pages of the reference."""
    texts = {DOCS / file.src_uri: file.content_string for file in files.documentation_pages()}
    PAGES.update({file.relative_to(DOCS).as_posix(): file for file in texts})
    queue = list(texts.items())
    for page, text in queue:
        for target in linked_files(page, FENCE.sub("", text)):
            uri = site_page(target)
            if uri is not None and uri not in PAGES:
                content = target.read_text() if target.suffix == ".md" else listing(target)
                files.append(File.generated(config, uri, content=content))
                PAGES[uri] = target
                queue.append((target, content))
    files.append(File.generated(config, "site.css", abs_src_path=str(ROOT / "scripts" / "site.css")))
    for section, names in reference().items():
        files.append(File.generated(config, _reference_page(section), content=_entries(section, names)))
    return files


def _entries(section: str, names: list[str]) -> str:
    options = "" if section in MEMBERS else "    options:\n      members: false\n      inherited_members: false\n"
    return f"# {section}\n\n" + "\n".join(f"::: headrace.{name}\n{options}" for name in names)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Adapt the Markdown that GitHub reads, and link the reference's overview to its entries."""
    uri = page.file.src_uri
    if uri == "reference.md":
        markdown = re.sub(r"^\| `(\w+)` \|", r"| [`\1`][headrace.\1] |", markdown, flags=re.MULTILINE)
    return for_site(markdown, PAGES[uri]) if uri in PAGES else markdown


def on_post_build(config: MkDocsConfig) -> None:
    """Put each page's Markdown beside it, where llms.txt links to."""
    site = Path(config.site_dir)
    for uri, file in PAGES.items():
        if file.suffix == ".md":
            shutil.copyfile(file, site / uri)
    (site / "llms.txt").write_text((DOCS / "llms.txt").read_text().replace("](../", "]("))


ENTRY = re.compile(r"^((?:`\w+`(?:, )?)+):? +(?=\S)", re.MULTILINE)
"""Start of a docstring's entry for one or more arguments."""


class Docstrings(griffe.Extension):
    """Docstrings as Markdown; a public name without one fails a strict build."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        public = {name for names in reference().values() for name in names}
        for name in public:
            entry = pkg[name]
            if not entry.has_docstring:
                log.warning("expected a docstring of the public name headrace.%s, got none", name)

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            blocks = obj.docstring.value.split("\n\n")
            if obj.is_module:  # what follows is for contributors
                blocks = [block for block in blocks if not block.startswith("Used by ")]
            obj.docstring.value = loose("\n\n".join(map(_arguments, blocks)))


def _arguments(block: str) -> str:
    """Return a paragraph with a list item for each argument, if it is a table of arguments."""
    lines = block.split("\n")
    if len(ENTRY.findall(block)) < 2 or not all(ENTRY.match(line) or line[:4].isspace() for line in lines):
        return re.sub(r"^(?=`\w+`: )", "- ", block, flags=re.MULTILINE)
    entries = (" ".join(entry.split()) for entry in re.split(r"^(?=`)", block, flags=re.MULTILINE) if entry)
    return "\n".join(ENTRY.sub(r"- \1: ", entry) for entry in entries)
