"""Layout of terminal reports: headings, sentences and rows with bars; and escapes for user data in all reports."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, chop_cells
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from headrace.doctor.measure import BOUND

LEAST_WIDTH = 60
MOST_WIDTH = 110
"""Maximum width: longer lines are hard to read, and longer bars show no more."""
LEAST_LABEL, LEAST_BAR, MOST_BAR = 14, 8, 24
MOST_REMARK_LINES = 3

HOT = 0.3
"""Share of a step from which waiting is shown in red; from `BOUND` on, it is shown in yellow."""

_ASCII = str.maketrans("–—·×µ→…±≤≥•", "--|xu>~~<>-")
_EIGHTHS = " ▏▎▍▌▋▊▉"
_FIGURE_AND_UNIT = re.compile(r"(?<=\d) (?=[%×]|[a-zA-Zµ]{1,3}\b)")
_GLUE = "\ue000"
"""Stand-in for a non-breaking space. It cannot occur in a page's texts, since it would be escaped."""


def heat(of_whole: float) -> str:
    """Return the colour for a share that should be small."""
    return "red" if of_whole >= HOT else "yellow" if of_whole >= BOUND else "green"


@dataclass(frozen=True)
class TerminalRow:
    """Row with a label, right-aligned columns, a share drawn as a bar (None: no bar), and a remark."""

    label: str
    cells: Sequence[str] = ()
    share: float | None = None
    style: str = ""
    remark: str = ""


class TerminalPage:
    """Lines to print, with all text escaped. Only code and lines to copy may exceed the page's width."""

    def __init__(self, width: int = MOST_WIDTH, *, ascii_only: bool = False) -> None:
        self.width = min(max(width, LEAST_WIDTH), MOST_WIDTH)
        self.lines: list[Text] = []
        self._ascii = ascii_only
        self._console = Console(file=io.StringIO(), width=self.width, legacy_windows=False, _environ={})

    def heading(self, title: str, tail: str = "") -> None:
        """Add an empty line, then the title in bold followed by its details."""
        self.lines.append(Text())
        self.sentence(tail, lead=f"{title}  ", lead_style="bold")

    def sentence(self, text: str, *, style: str = "", lead: str = "", lead_style: str = "") -> None:
        """Add text wrapped at spaces, with all lines aligned to the right of `lead`."""
        if not lead:
            self._put(Text(self._glued(text), style, overflow="fold"))
            return
        grid = Table.grid()
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row(Text(self.shown(lead), lead_style), Text(self._glued(text), style))
        self._put(grid)

    def line(self, text: str, *, style: str = "", indent: int = 2) -> None:
        """Add one line, truncated if too long."""
        self.lines.append(Text(" " * indent).append(self.shorten(text, self.width - indent), style))

    def quote(self, text: str, *, indent: int = 2) -> None:
        """Add foreign text completely and with its spaces, split into lines at the page's width."""
        for piece in chop_cells(self.shown(text), self.width - indent) or [""]:
            self.lines.append(Text(" " * indent + piece))

    def code(self, text: str, *, indent: int = 2) -> None:
        """Add a line of code without wrapping."""
        self.lines.append(Text(" " * indent + self.shown(text)))

    def copyable(self, text: str, *, lead: str) -> None:
        """Add a line to copy, without wrapping by the page."""
        self.lines.append(Text(self.shown(lead), "bold").append(self.shown(text), "not bold"))

    def rows(self, rows: Sequence[TerminalRow], *, indent: int = 2) -> None:
        """Add rows with aligned columns and bars. Labels and remarks are truncated to the remaining width."""
        if not rows:
            return
        columns = zip(*([row.label, row.remark, *row.cells] for row in rows), strict=True)
        label, remark, *cells = (max(cell_len(self.shown(text)) for text in column) for column in columns)
        has_bars = any(row.share is not None for row in rows)
        room = self.width - indent - sum(cell + 2 for cell in cells) - (LEAST_BAR + 2 if has_bars else 0)
        label = min(label, max(room, LEAST_LABEL))
        bar = LEAST_BAR + min(max(room - label - remark - 2, 0), MOST_BAR - LEAST_BAR)
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(width=label)
        for _ in cells:
            grid.add_column(justify="right", no_wrap=True)
        if has_bars:
            grid.add_column(width=bar)
        for row in rows:
            eighths = round(min(max(row.share or 0.0, 0.0), 1.0) * bar * 8)
            drawn = "#" * round(eighths / 8) if self._ascii else "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
            bars = [Text(drawn, row.style)] if has_bars else []
            remarks = [self._cut(row.remark, "dim")] if remark else []
            grid.add_row(self._cut(row.label), *map(self._cut, row.cells), *bars, *remarks)
        self._put(Padding(grid, (0, 0, 0, indent)))

    def entries(self, rows: Sequence[TerminalRow], *, most_label: int, indent: int = 2) -> None:
        """Add rows: labels wrap within `most_label` cells, remarks continue below, and overlong ones are truncated."""
        if not rows:
            return
        shown = [[self.shown(cell) for cell in row.cells] for row in rows]
        widths = [max(map(cell_len, column)) for column in zip(*shown, strict=True)]
        beside = sum(widths) + 2 * (len(widths) - 1)
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(max_width=min(most_label, self.width - indent - 2 - beside), overflow="fold")
        grid.add_column(overflow="fold")
        for row, cells in zip(rows, shown, strict=True):
            figures = "  ".join(" " * (width - cell_len(one)) + one for width, one in zip(widths, cells, strict=True))
            remark = self.shorten(row.remark, MOST_REMARK_LINES * (self.width - most_label))
            glued = Text(figures.replace(" ", _GLUE)).append(f"  {self._glued(remark)}" if remark else "", "dim")
            grid.add_row(self._glued(row.label), glued)
        self._put(Padding(grid, (0, 0, 0, indent)))

    def show(self, console: Console) -> None:
        """Print the page in one piece."""
        console.print(Text("\n").join(self.lines), soft_wrap=True, highlight=False)

    def shown(self, text: str) -> str:
        """Return `text` escaped for this page."""
        return safe(self._signs(text), ascii_only=self._ascii)

    def shorten(self, text: str, cells: int, *, keep: str = "start") -> str:
        """Return `shown` in at most `cells`, with an ellipsis if truncated; `keep` names the end to preserve."""
        shown, room = self.shown(text), max(cells - 1, 1)
        if cell_len(shown) <= cells:
            return shown
        if keep == "start":
            return chop_cells(shown, room)[0] + self._signs("…")
        return self._signs("…") + chop_cells(shown[::-1], room)[0][::-1]

    def _put(self, renderable: RenderableType) -> None:
        for segments in self._console.render_lines(renderable, pad=False):
            line = Text.assemble(*((self._signs(text.replace(_GLUE, " ")), style or "") for text, style, _ in segments))
            line.rstrip()
            self.lines.append(line)

    def _glued(self, text: str) -> str:
        """Return `shown` without a break between a figure and its unit."""
        return _FIGURE_AND_UNIT.sub(_GLUE, self.shown(text))

    def _cut(self, text: str, style: str = "") -> Text:
        """Return a single-line cell, truncated at the column's width."""
        return Text(self.shown(text), style, no_wrap=True, overflow="ellipsis")

    def _signs(self, text: str) -> str:
        return text.translate(_ASCII) if self._ascii else text


_NOT_ASCII = re.compile("[^\x20-\x7e]")


def safe(text: object, *, ascii_only: bool = False) -> str:
    r"""Return `text` on one line, with a backslash escape for each character that is not plainly visible.

    Escaped characters control a terminal, end a line, have no width, change the writing direction, or are unassigned
    (`str.isprintable`). Path bytes that are not UTF-8 (surrogates in Python) become byte escapes, such as `\xff`.
    """
    return _NOT_ASCII.sub(lambda found: _visible(found.group(), ascii_only), str(text))


def safe_json(text: str) -> str:
    """Return an equivalent JSON document in which all characters except line ends are plainly visible."""
    return _NOT_ASCII.sub(lambda found: _visible_json(found.group()), text)


def _visible(character: str, ascii_only: bool) -> str:
    code = ord(character)
    if character.isprintable() and not ascii_only:
        return character
    if 0xDC80 <= code <= 0xDCFF:  # surrogateescape of one byte
        return f"\\x{code - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()


def _visible_json(character: str) -> str:
    if character == "\n" or character.isprintable():
        return character
    return f"\\u{ord(character):04x}" if character == "\x7f" else json.dumps(character)[1:-1]
