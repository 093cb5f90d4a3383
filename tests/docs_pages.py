"""Pages of docs/, as tests read them."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def section(page: str, title: str = "", *, before: str = "") -> str:
    """Return a page, or one of its sections; without the section `before` and those after it."""
    text = (DOCS / page).read_text()
    if title:
        (text,) = re.findall(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    if before:
        text, found, _ = text.partition(f"\n## {before}\n")
        assert found, f"{page} has no section {before!r}"
    return text


def examples(page: str, title: str = "", *, before: str = "") -> list[str]:
    """Return the Python examples of a page, or of one of its sections."""
    return re.findall(r"```python\n(.*?)```", section(page, title, before=before), re.DOTALL)
