"""Layout of terminal reports: headings, sentences, rows with bars, and how much fits a screen."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.text import Text

from headrace.doctor.report.escaping import safe

# -- from doctor/report/page.py: A page of text lines: headings, sentences, rows with bars. It knows width and signs,
# and nothing of a diagnosis.


LEAST_WIDTH = 60
MOST_WIDTH = 110
"""Longer lines are hard to read, and longer bars tell no more."""
LEAST_LABEL, LEAST_REMARK = 14, 10
MOST_REMARK_LINES = 4
LEAST_BAR, MOST_BAR = 8, 24

_ASCII = str.maketrans("–—·×µ→…±≤≥•", "--|xu>~~<>-")
_EIGHTHS = " ▏▎▍▌▋▊▉"
_FIGURE_AND_UNIT = re.compile(r"(?<=\d) (?=%|[×a-zA-Zµ]{1,3}\b)")
_UNBREAKABLE = "\u00a0"  # no text on a page has one: it would be escaped


@dataclass(frozen=True)
class TerminalRow:
    """A label, the columns after it (right-aligned), a share drawn as a bar (None: no bar), and a remark."""

    label: str
    cells: Sequence[str] = ()
    share: float | None = None
    style: str = ""
    remark: str = ""


class TerminalPage:
    """Lines as they will be printed, none wider than the page but those to be copied. Every text on it is escaped."""

    def __init__(self, width: int = MOST_WIDTH, *, ascii_only: bool = False) -> None:
        self.width = min(max(width, LEAST_WIDTH), MOST_WIDTH)
        self._ascii = ascii_only
        self.lines: list[Text] = []

    def blank(self) -> None:
        self.lines.append(Text())

    def heading(self, title: str, tail: str = "") -> None:
        """After an empty line: the title in bold, and what belongs beside it."""
        self.blank()
        self.sentence(tail, lead=f"{title}  ", lead_style="bold")

    def sentence(self, text: str, *, style: str = "", lead: str = "", lead_style: str = "") -> None:
        """Wrapped at spaces, further lines under the first one's text, which stands right of `lead`."""
        margin = self.shown(lead)
        indent = cell_len(margin)
        for piece in _wrapped(self.shown(text), self.width - indent):
            line = Text().append(margin, lead_style).append(piece, style)
            line.rstrip()
            self.lines.append(line)
            margin = " " * indent

    def line(self, text: str, *, style: str = "", indent: int = 2, keep: str = "start") -> None:
        """One line; `keep` says which end of it matters where it is too long."""
        self.lines.append(Text(" " * indent).append(self.shorten(text, self.width - indent, keep=keep), style))

    def quote(self, text: str, *, indent: int = 2) -> None:
        """Somebody else's words: all of them, its spaces kept, cut into lines where the page ends."""
        for piece in chop_cells(self.shown(text), self.width - indent) or [""]:
            self.lines.append(Text(" " * indent + piece))

    def code(self, text: str, *, indent: int = 2) -> None:
        """A line of a program, as it is: however long, it is one line here."""
        self.lines.append(Text(" " * indent + self.shown(text)))

    def copyable(self, text: str, *, lead: str) -> None:
        """A line to be copied, which a terminal may wrap and this page does not."""
        self.lines.append(Text(self.shown(lead), "bold").append(self.shown(text), "not bold"))

    def rows(self, rows: Sequence[TerminalRow], *, indent: int = 2, keep: str = "start") -> None:
        """Rows under each other: columns aligned, bars from one zero. `keep` is for labels that are too long."""
        if not rows:
            return
        shown = [replace(row, label=self.shown(row.label), remark=self.shown(row.remark)) for row in rows]
        layout = _layout(shown, self.width - indent)
        self.lines += [self._row(row, indent, layout, keep) for row in rows]

    def entries(self, rows: Sequence[TerminalRow], *, most_label: int, indent: int = 2) -> None:
        """Rows of which no word is left out but of a remark without end: labels wrap within `most_label` cells, and a
        remark that has no room beside its row's cells stands below them."""
        shown = [replace(row, label=self.shown(row.label), remark=self.shown(row.remark)) for row in rows]
        columns = zip(*(map(self.shown, row.cells) for row in shown), strict=True)
        cells = [max(map(cell_len, column)) for column in columns]
        room = self.width - indent - sum(cell + 2 for cell in cells)
        longest = max((cell_len(row.label) for row in shown), default=0)
        label = min(longest, most_label, max(room, LEAST_REMARK))
        for row in shown:
            self.lines += self._entry(row, indent, label, cells)

    def show(self, console: Console) -> None:
        """In one piece, since a notebook makes a block of its own of each."""
        console.print(Text("\n").join(self.lines), soft_wrap=True, highlight=False)

    def shown(self, text: str) -> str:
        """`text` as this page can show it, escaped."""
        return safe(self._signs(text), ascii_only=self._ascii)

    def shorten(self, text: str, cells: int, *, keep: str = "start") -> str:
        """`shown`, in at most `cells`; a sign stands where something is missing."""
        shown, room = self.shown(text), max(cells - 1, 1)
        if cell_len(shown) <= cells:
            return shown
        if keep == "start":
            return chop_cells(shown, room)[0] + self._signs("…")
        return self._signs("…") + chop_cells(shown[::-1], room)[0][::-1]

    def _signs(self, text: str) -> str:
        return text.translate(_ASCII) if self._ascii else text

    def _row(self, row: TerminalRow, indent: int, layout: _Layout, keep: str) -> Text:
        label = self.shorten(row.label, layout.label, keep=keep)
        text = Text(" " * indent + label + " " * (layout.label - cell_len(label)))
        for cell, width in zip(row.cells, layout.cells, strict=True):
            text.append("  " + self._padded(cell, width))
        if layout.bar:
            bar = self._bar(row.share, layout.bar)
            text.append("  ").append(bar, row.style).append(" " * (layout.bar - len(bar)))
        room = self.width - text.cell_len - 2
        if row.remark and room >= LEAST_REMARK:
            text.append("  ").append(self.shorten(row.remark, room), "dim")
        text.rstrip()
        return text

    def _entry(self, row: TerminalRow, indent: int, label: int, cells: list[int]) -> Iterator[Text]:
        figures = "".join("  " + self._padded(cell, width) for cell, width in zip(row.cells, cells, strict=True))
        beside, below = self.width - indent - label - cell_len(figures) - 2, self.width - indent - label - 2
        is_beside = not row.remark or cell_len(row.remark) <= beside
        column = [Text(figures).append(f"  {row.remark}" if is_beside else "", "dim")]
        if not is_beside:
            column += [Text("  ").append(line, "dim") for line in self._cut(row.remark, below)]
        for title, rest in zip_longest(_wrapped(row.label, label), column, fillvalue=""):
            line = Text(" " * indent + str(title) + " " * (label - cell_len(str(title)))).append(rest)
            line.rstrip()
            yield line

    def _cut(self, remark: str, width: int) -> list[str]:
        """Its first lines, with a sign where there are more."""
        lines = list(_wrapped(remark, width))
        if len(lines) <= MOST_REMARK_LINES:
            return lines
        return [*lines[: MOST_REMARK_LINES - 1], self.shorten(" ".join(lines[MOST_REMARK_LINES - 1 :]), width)]

    def _padded(self, cell: str, width: int) -> str:
        shown = self.shown(cell)
        return " " * (width - cell_len(shown)) + shown

    def _bar(self, share: float | None, cells: int) -> str:
        eighths = 0 if share is None else round(min(max(share, 0.0), 1.0) * cells * 8)
        if self._ascii:
            return "#" * round(eighths / 8)
        return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


@dataclass(frozen=True)
class _Layout:
    """Widths in cells; a `bar` of 0 is none."""

    label: int
    cells: list[int]
    bar: int


def _layout(rows: Sequence[TerminalRow], width: int) -> _Layout:
    """What is left beside the cells goes to the labels first, then to the remarks; bars take the rest."""
    cells = [max(cell_len(row.cells[column]) for row in rows) for column in range(len(rows[0].cells))]
    has_bars = any(row.share is not None for row in rows)
    remark = max(cell_len(row.remark) + 2 if row.remark else 0 for row in rows)
    room = width - sum(cell + 2 for cell in cells) - (LEAST_BAR + 2 if has_bars else 0)
    longest = max(cell_len(row.label) for row in rows)
    label = min(longest, max(room, LEAST_LABEL))
    bar = LEAST_BAR + min(max(room - label - remark, 0), MOST_BAR - LEAST_BAR)
    return _Layout(label=label, cells=cells, bar=bar if has_bars else 0)


def _wrapped(text: str, width: int) -> Iterator[str]:
    """Lines of at most `width` cells, broken at spaces, though not between a figure and its unit; a word that is wider
    is cut."""
    line = ""
    for word in _FIGURE_AND_UNIT.sub(_UNBREAKABLE, text).split(" "):
        joined = f"{line} {word}" if line else word
        if cell_len(joined) <= width:
            line = joined
            continue
        if line:
            yield line.replace(_UNBREAKABLE, " ")
        *full, line = chop_cells(word, width) if word else [""]
        yield from full
    yield line.replace(_UNBREAKABLE, " ")


# -- from doctor/report/detail.py: How much of a diagnosis a report shows.


EVERYTHING = 1_000_000


@dataclass(frozen=True)
class ReportDetail:
    """The most rows of each kind. What is left out is said."""

    findings: int
    advice: int
    """Above 0: what each finding says to look at."""
    budgets: int
    causes: int
    stages: int
    lines: int
    slow: int
    loaders: int
    ranks: int
    notes: int
    note_lines: int
    machines: int
    last_lines: int
    remedies: int
    idle_remedies: int
    reasons: int
    """Above 0: why each remedy helps, and the change in the code."""
    windows: int
    """Above 0: what a measured run did, window by window."""
    evidence: int
    """Above 0: what shows each finding."""
    rest: str = field(default="--verbose", kw_only=True)
    """How to get what is left out."""


SCREEN = ReportDetail(
    findings=2,
    advice=1,
    budgets=1,
    causes=0,
    stages=4,
    lines=1,
    slow=1,
    loaders=1,
    ranks=8,
    notes=2,
    note_lines=0,
    machines=1,
    last_lines=6,
    remedies=3,
    idle_remedies=1,
    reasons=0,
    windows=0,
    evidence=1,
)
"""Fits a terminal of 40 lines as a rule."""
SCREEN_WITH_REMEDIES = replace(SCREEN, findings=1, advice=0, evidence=0, stages=2, notes=1)
"""The same where remedies, which say what to do, want some of the room."""
CELL_REST = "watch(verbose=True)"
CELL = replace(SCREEN, rest=CELL_REST)
"""Below the cell of a notebook, which scrolls."""
CELL_WITH_REMEDIES = replace(SCREEN_WITH_REMEDIES, evidence=1, reasons=1, rest=CELL_REST)
ALL = ReportDetail(*[EVERYTHING] * 18)
