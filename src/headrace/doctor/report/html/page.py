"""HTML report: one offline page, rendered from templates."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from types import MappingProxyType

from markupsafe import Markup

from headrace.doctor.faults import FaultPicture
from headrace.doctor.measure import with_loaders_as_one
from headrace.doctor.quantities import counted
from headrace.doctor.report.html import tables
from headrace.doctor.report.html.charts import FOLDER, environment
from headrace.doctor.report.remedy_text import part_line
from headrace.doctor.report.terminal_layout import heat
from headrace.doctor.report.view import ReportView

MOST_BYTES = 1_000_000
"""Size limit of the file in bytes, since it is mailed and opened on phones."""
MOST_PICTURED = 500_000
"""Size limit of all pictures in the file, in bytes."""
TEXT_LIMITS = (1_200, 240, 60)
"""Maximum characters of one text. Smaller limits apply if the file would be too large."""
_BADGES = {"red": "● Input-bound", "yellow": "◐ Partly input-bound", "green": "○ Not input-bound"}
"""Text equivalents of the colours for accessibility."""


def html_page(view: ReportView, pictures: Mapping[int, FaultPicture] = MappingProxyType({})) -> str:
    """Return a document under 1 MB without scripts or external resources. Pure except for reading its templates.

    `pictures` show the view's faults, by their place; the last are left out if they are too large.
    """
    style = (FOLDER / "style.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    colour = "" if view.waits is None else heat(view.waits)
    pids = [step.budget.pid for step in view.steps[:1]]
    trainers = [with_loaders_as_one(one) for one in view.session.trainers if one.pid in pids]
    embedded = _embedded(pictures)
    images = "img-src data:; " if embedded else ""
    context = {
        "view": view,
        "heat": colour,
        "badge": _BADGES.get(colour, ""),
        "style": Markup(style),
        "policy": f"default-src 'none'; style-src 'sha256-{digest}'; {images}base-uri 'none'; form-action 'none'",
        "pictures": embedded,
        "settings": [loader for one in trainers for loader in one.loaders],
        "tables": tables,
        **{one.__name__: one for one in (counted, part_line)},
    }
    for limit in TEXT_LIMITS:
        page = environment(limit).get_template("page.html").render(context, contents=[])
        if len(page.encode()) < MOST_BYTES:
            break
    return page


def _embedded(pictures: Mapping[int, FaultPicture]) -> dict[int, tuple[Markup, str]]:
    """Return the address and the text of each picture, the address with the picture itself."""
    found, left = {}, MOST_PICTURED
    for place, picture in pictures.items():
        address = f"data:image/png;base64,{base64.b64encode(picture.png).decode()}"
        left -= len(address)
        if left >= 0:
            found[place] = Markup(address), picture.text
    return found
