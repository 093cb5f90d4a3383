"""What sections of the page are made from: the session's data, tables, charts and texts."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from markupsafe import Markup

from headrace.doctor.causes.remedy import Prescription
from headrace.doctor.measure.batches import Join
from headrace.doctor.measure.diagnosis import Diagnosis, StepBudget
from headrace.doctor.measure.steps import MeasuredTraining, training, with_loaders_as_one
from headrace.doctor.report.terminal import waiting_most
from headrace.doctor.session.model import BatchProducer, Session

# -- from doctor/report/html/blocks.py: What the page is made of: sections of figures, tables and texts, which know
# nothing of HTML but for their charts.


Cell = str | Markup


@dataclass(frozen=True)
class Key:
    """An entry of a legend: a colour's class, what it stands for, and its figure."""

    colour: str
    name: str
    figure: str = ""


@dataclass(frozen=True)
class Figure:
    """A chart with its legend; `how` says how it is read."""

    kind: ClassVar[str] = "figure"
    title: str
    chart: Markup
    how: str
    keys: list[Key] = field(default_factory=list)
    unit: str = ""


@dataclass(frozen=True)
class HtmlTable:
    """Rows under a head. The first column is what a row is about; those in `figures` are numbers; a column that holds
    charts has an empty head."""

    kind: ClassVar[str] = "table"
    title: str
    head: list[str]
    rows: list[list[Cell]]
    how: str = ""
    figures: frozenset[int] = frozenset()
    charts: frozenset[int] = frozenset()
    keys: list[Key] = field(default_factory=list)
    left_out: str = ""
    long_names: bool = False

    @property
    def shape(self) -> str:
        """Classes of the whole: whether it holds charts, whether words beside them want room, whether its rows have
        long names."""
        words = len(self.head) > 1 + len(self.charts) + len(self.figures)
        shapes = (("charted", bool(self.charts)), ("worded", words), ("named", self.long_names))
        return " ".join(name for name, has in shapes if has)

    def column(self, place: int) -> str:
        """Its class."""
        if place == 0:
            return "name"
        return "chart" if place in self.charts else "figures" if place in self.figures else "words"


@dataclass(frozen=True)
class Texts:
    """Paragraphs: a head in bold, which may be empty, and the text. `figure` stands beside them and weighs them."""

    kind: ClassVar[str] = "texts"
    texts: list[tuple[str, str]]
    title: str = ""
    figure: str = ""


@dataclass(frozen=True)
class Quote:
    """Somebody else's words, line by line."""

    kind: ClassVar[str] = "quote"
    title: str
    lines: list[str]


@dataclass(frozen=True)
class Card:
    """One thing to do: figures at its head, and below them why, what it costs, and the change."""

    title: str
    gain: str
    figures: list[tuple[str, str]]
    texts: list[tuple[str, str]]
    refused: bool = False
    """Whether trying it spoke against it."""
    file: str = ""
    diff: list[tuple[str, str]] = field(default_factory=list)
    """Lines with their kind: `more`, `less`, `same` or `place`."""


@dataclass(frozen=True)
class Cards:
    """Things to do, the one that gains most first."""

    kind: ClassVar[str] = "cards"
    cards: list[Card]


Block = Figure | HtmlTable | Texts | Quote | Cards


@dataclass(frozen=True)
class Section:
    """A part of the page. `name` is its anchor and its entry in the contents."""

    name: str
    title: str
    blocks: list[Block]
    lead: str = ""


# -- from doctor/report/html/report.py: What a page is made from, and the one trainer that it is about.


@dataclass(frozen=True)
class ReportData:
    """A session and what was computed from it."""

    session: Session
    diagnosis: Diagnosis
    prescription: Prescription | None
    again: str = ""

    @cached_property
    def budget(self) -> StepBudget | None:
        """Of the rank that waits longest for data."""
        return next(iter(waiting_most(self.diagnosis)), None)

    @cached_property
    def training(self) -> MeasuredTraining | None:
        """Its measured steps."""
        for trainer in self.session.trainers:
            if self.budget is not None and (trainer.pid, trainer.rank) == (self.budget.pid, self.budget.rank):
                measured = training(self.session, with_loaders_as_one(trainer))
                return measured if measured.steps else None
        return None

    @cached_property
    def join(self) -> Join:
        return Join(self.session)

    @cached_property
    def whose(self) -> str:
        """`, rank 3`, where there are several ranks; else empty."""
        several = len({trainer.rank for trainer in self.session.trainers}) > 1
        return f", rank {self.budget.rank}" if several and self.budget is not None else ""

    def makers_of(self, pid: int, host: str) -> list[BatchProducer]:
        """By their number."""
        own = [maker for maker in self.session.makers if maker.trainer == pid and maker.host == host]
        return sorted(own, key=lambda maker: (maker.worker or 0, maker.started or 0))
