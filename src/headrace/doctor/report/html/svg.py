"""SVG and HTML elements, escaped."""

from __future__ import annotations

from markupsafe import Markup, escape

from ..escape import safe

Attribute = str | float | None


def element(name: str, *children: str | Markup, **attributes: Attribute) -> Markup:
    """`class_` and `stroke_width` are the attributes `class` and `stroke-width`; one that is None is left out. Text
    among the children is escaped."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = Markup("").join(child if isinstance(child, Markup) else escape(safe(child)) for child in children)
    return Markup(f"<{name}{written}>{inner}</{name}>")


def figure(value: float) -> str:
    """A coordinate in as few characters as a screen can show of it."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def percent(share: float) -> str:
    return f"{figure(share * 100)}%"


def _text(value: str | float) -> str:
    return safe(value) if isinstance(value, str) else figure(value)
