"""HTML report: the whole terminal report as one offline page without scripts, with pictures of the data's faults."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping
from types import MappingProxyType

from rich.console import Console

from headrace.doctor.faults import FaultPicture
from headrace.doctor.report.terminal import TEXT_WIDTH, show
from headrace.doctor.report.terminal_layout import safe
from headrace.doctor.report.view import ReportView

MOST_PICTURED = 500_000
"""Size limit of all pictures in the page, in bytes, since it is mailed and opened on phones."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_HEAD = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
"""
_REPORT = """<style>
body {{ color: {foreground}; background: {background}; margin: 1em; }}
pre {{ font-family: ui-monospace, Menlo, "DejaVu Sans Mono", Consolas, monospace; overflow-x: auto; }}
img {{ max-width: 100%; }}
{stylesheet}
</style>
</head>
<body>
<pre>{code}</pre>
"""


def html_page(view: ReportView, pictures: Mapping[int, FaultPicture] = MappingProxyType({})) -> str:
    """Return a document without scripts or external resources; the last of the faults' `pictures` may not fit."""
    console = Console(
        record=True, file=io.StringIO(), width=TEXT_WIDTH, color_system="truecolor", force_terminal=True, _environ={}
    )
    show(view, console, verbose=True)
    title = f"<title>{html.escape(safe(f'Headrace doctor: {view.command}'))}</title>\n"
    report = console.export_html(code_format=_REPORT)
    return f"{_HEAD}{title}{report}{_figures(view, pictures)}</body>\n</html>\n"


def _figures(view: ReportView, pictures: Mapping[int, FaultPicture]) -> str:
    found, left = "", MOST_PICTURED
    for place, picture in pictures.items():
        data = base64.b64encode(picture.png).decode()
        left -= len(data)
        if left >= 0:
            text = html.escape(safe(picture.text))
            code = html.escape(safe(view.session.faults[place].code))
            found += f'<figure><img src="data:image/png;base64,{data}" alt="{text}">'
            found += f"<figcaption>{code}: {text}</figcaption></figure>\n"
    return found
