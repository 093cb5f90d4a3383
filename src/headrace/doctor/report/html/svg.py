"""SVG and HTML elements, escaped."""

from __future__ import annotations

from markupsafe import Markup, escape

from headrace.doctor.report.escape import safe

Attribute = str | float | None
MOST_TEXT = 300
"""Characters of what a chart says in words."""


def element(name: str, *children: str | Markup, **attributes: Attribute) -> Markup:
    """`class_` and `stroke_width` are the attributes `class` and `stroke-width`; one that is None is left out. Text
    among the children is escaped."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_text(key, value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = Markup("").join(child if isinstance(child, Markup) else escape(seen(child)) for child in children)
    return Markup(f"<{name}{written}>{inner}</{name}>")


def figure(value: float) -> str:
    """A coordinate in as few characters as a screen can show of it."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def percent(share: float) -> str:
    return f"{figure(share * 100)}%"


def seen(text: str, *, most: int = MOST_TEXT) -> str:
    """`text` as `safe` has it, in at most so many characters; a sign stands where something is missing."""
    shown = safe(text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def _text(key: str, value: str | float) -> str:
    if isinstance(value, str):
        return seen(value) if key == "aria_label" else value
    return figure(value)
