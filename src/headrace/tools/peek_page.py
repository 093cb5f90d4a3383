"""One HTML page, complete in itself, of what a data set holds: no script, nothing fetched."""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import PIL.Image

from headrace.peek.histogram import Histogram, histogram
from headrace.tools.peek_survey import Look, Survey

MOST_ROWS = 50
"""Of classes, failures and groups of near-duplicates each: what a reader looks through. The page says how many more."""


@dataclass(frozen=True)
class Group:
    """Samples that look nearly the same."""

    keys: Sequence[str]
    pictures: Sequence[str]
    """`data:` addresses of the first of them."""


@dataclass(frozen=True)
class Content:
    """What the page shows."""

    title: str
    survey: Survey
    classes: Mapping[str, int]
    """Samples by class, of the whole data set; empty where it has none."""
    groups: Sequence[Group]
    sheet: str | None
    """`data:` address of the contact sheet."""
    sheet_view: str
    """The view that its samples were drawn by."""
    note: str | None = None
    """Why there is no sheet."""


def render(content: Content) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("headrace.peek"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["figure"] = figure
    environment.filters["printable"] = printable
    looks = content.survey.looks
    return environment.get_template("page.html").render(
        content=content,
        looked=len(looks),
        charts=[(title, unit, chart) for title, unit, chart in _charts(looks) if chart is not None],
        formats=Counter(look.format or "not recognised" for look in looks if look.bytes is not None).most_common(),
        classes=sorted(content.classes.items(), key=lambda item: -item[1]),
        failures=content.survey.failures,
        most=MOST_ROWS,
    )


def _charts(looks: Iterable[Look]) -> list[tuple[str, str, Histogram | None]]:
    """Title, unit and bars of each."""
    looks = list(looks)
    sizes = [look.size for look in looks if look.size is not None]
    return [
        ("Width", "px", histogram([width for width, _ in sizes])),
        ("Height", "px", histogram([height for _, height in sizes])),
        ("Aspect ratio", "width / height", histogram([width / height for width, height in sizes if height])),
        ("File size", "bytes", histogram([look.bytes for look in looks if look.bytes is not None])),
    ]


def figure(number: float) -> str:
    """As many digits as a reader needs: 1,234 and 0.75."""
    return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:.3g}"


def printable(text: str) -> str:
    """Names that are no UTF-8 cannot be written as such."""
    return text.encode("utf-8", "backslashreplace").decode()


def picture_address(picture: PIL.Image.Image) -> str:
    """The picture itself as an address, in JPEG."""
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def document(content: Content) -> dict[str, Any]:
    """The same for machines."""
    looks = content.survey.looks
    return {
        "samples": content.survey.samples,
        "looked": len(looks),
        "formats": dict(Counter(look.format for look in looks if look.format is not None)),
        "classes": dict(content.classes),
        "failures": [{"key": printable(look.key), "error": look.error} for look in content.survey.failures],
        "near_duplicates": [[printable(key) for key in group.keys] for group in content.groups],
        **{
            title.lower().replace(" ", "_"): None
            if bars is None
            else {"smallest": bars.smallest, "median": bars.median, "largest": bars.largest}
            for title, _, bars in _charts(looks)
        },
    }
