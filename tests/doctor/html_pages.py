"""Pages of the HTML report, and what a parser makes of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

from made_reports import balanced_prescription, made_diagnosis, made_prescription, made_ranks, made_session
from made_sessions import replace

from headrace.doctor.causes import diagnose
from headrace.doctor.measure import Statement
from headrace.doctor.report.html_page import html_page
from headrace.doctor.report.view import report_view
from headrace.doctor.session.model import Session

VOID = {"meta", "link", "br", "img", "input", "hr", "base"}
AGAIN = "headrace doctor show session.json"


@dataclass
class Tag:
    """One element: its name, attributes, and the text in it."""

    name: str
    attributes: dict[str, str]
    text: str = ""
    inside: list[str] = field(default_factory=list)
    """Names of the elements around it."""


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[Tag] = []
        self._open: list[Tag] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made = Tag(tag, {name: value or "" for name, value in attrs}, inside=[one.name for one in self._open])
        self.tags.append(made)
        if tag not in VOID:
            self._open.append(made)

    def handle_endtag(self, tag: str) -> None:
        closed = self._open.pop()
        assert closed.name == tag, f"expected </{closed.name}>, got </{tag}>"

    def handle_data(self, data: str) -> None:
        for one in self._open:
            one.text += data


def parsed(page: str) -> list[Tag]:
    """Every element in order; fails where one is not closed in its turn."""
    parser = _Parser()
    parser.feed(page)
    parser.close()
    assert parser._open == []
    return parser.tags


def sections(page: str) -> dict[str, Tag]:
    return {tag.attributes["id"]: tag for tag in parsed(page) if tag.name == "section" and "id" in tag.attributes}


def words(tag: Tag) -> str:
    """Its text with each run of white space as one space."""
    return " ".join(tag.text.split())


def made_page(**changes: object) -> str:
    """Of everything that there may be in a report."""
    diagnosis = replace(made_ranks(), **changes) if changes else made_ranks()
    return html_page(report_view(made_session(40), diagnosis, made_prescription(), again=AGAIN))


def calm_page() -> str:
    """Of a run that is not input-bound."""
    verdict = Statement("not-input-bound", "Not input-bound: the GPU waits 2 % of each step.")
    diagnosis = replace(made_diagnosis(), wait_share=0.02, verdict=verdict)
    return html_page(report_view(made_session(40), diagnosis, balanced_prescription()))


def large_session(steps: int = 10_000, ranks: int = 8) -> Session:
    """As many ranks as a machine has GPUs, each with two workers."""
    one = made_session(steps)
    (trainer,), (first, second) = one.trainers, one.makers
    trainers, makers = [], []
    for rank in range(ranks):
        pid = 1000 * (rank + 1)
        passes = [replace(trainer.passes[0], workers=[pid + 1, pid + 2])]
        trainers.append(replace(trainer, rank=rank, pid=pid, passes=passes))
        makers += [replace(first, pid=pid + 1, trainer=pid), replace(second, pid=pid + 2, trainer=pid)]
    return replace(one, trainers=trainers, makers=makers)


def large_page(steps: int = 10_000, ranks: int = 8) -> str:
    session = large_session(steps, ranks)
    return html_page(report_view(session, diagnose(session), made_prescription(), again=AGAIN))
