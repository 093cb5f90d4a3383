"""Sections on what to do: findings, and remedies with their changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import dropwhile

from headrace.doctor.causes.remedy import Prescription
from headrace.doctor.report.escaping import duration, share
from headrace.doctor.report.html.blocks import Block, Card, Cards, Cell, HtmlTable, Key, ReportData, Section, Texts
from headrace.doctor.report.html.charts import BarMeasure, measures
from headrace.doctor.report.remedy_text import RemedyRow, RemedyRows, bounds, remedy_rows, times

# -- from doctor/report/html/sections/remedies.py: What to do: each remedy with what it gains, as predicted and as
# proved, and the change; then what would not help.


MOST_REMEDIES = 24
"""Remedies that are shown."""
MOST_DIFF_LINES = 120
HOW_REMEDIES = (
    "Bars begin at zero, and the shorter the better. A prediction comes from the recorded times of every batch, sent "
    "again through the workers, the queue and the device with the remedy in place; the line across its end is the "
    "interval that covers the truth in at least 80 of 100 cases. A proof is a run of the same command with the remedy "
    "in place, after one as it is: a machine that others use, too, may be faster or slower by then. Its gain is told "
    "by the shorter of the two runs without it. The broken line is the floor: no loader makes a step shorter."
)
_DIFF = {"+": "more", "-": "less", "@": "place"}


def remedies(report: ReportData) -> Section | None:
    prescription = report.prescription
    if prescription is None or not prescription.remedies:
        return None
    rows = remedy_rows(prescription)
    blocks: list[Block] = []
    if rows.helps and _now_us(report) > 0:
        blocks.append(_chart(_now_us(report), prescription, rows))
    if rows.helps:
        blocks.append(Cards([_card(row) for row in rows.helps[:MOST_REMEDIES]]))
    if rows.idle:
        table: list[list[Cell]] = [[title, why] for title, why in rows.idle[:MOST_REMEDIES]]
        blocks.append(HtmlTable("What would not help", ["remedy", "why not"], table))
    return Section("remedies", "What to do", blocks)


def _now_us(report: ReportData) -> float:
    """A step as it is."""
    prescription, budget = report.prescription, report.budget
    if prescription is not None and prescription.floors is not None:
        return prescription.floors.observed_us
    return budget.mean_us if budget is not None else 0.0


def _chart(now_us: float, prescription: Prescription, rows: RemedyRows) -> HtmlTable:
    again_us, floors = prescription.again_us, prescription.floors
    floor_us = None if floors is None else floors.replay_us
    drawn = [
        replace(row, title=f"{place}. {row.title}") for place, row in enumerate(rows.helps[:MOST_REMEDIES], start=1)
    ]
    if len(rows.helps) > 1:
        drawn.append(replace(rows.together, title=_together(rows)))
    top = max([now_us, again_us or 0.0, *(reach for row in drawn for reach in _reaches(row))])
    first = [_without("As it is", now_us, top=top, floor_us=floor_us)]
    if again_us is not None:
        first.append(_without("As it is, again", again_us, top=top, floor_us=floor_us))
    shown = [_row(row, top=top, floor_us=floor_us) for row in drawn]
    keys = [Key("now", "as it is"), Key("predicted", "predicted")]
    if any(row.outcome is not None for row in drawn):
        keys.append(Key("proved", "proved"))
    if floor_us is not None:
        keys.append(Key("floor", "floor", duration(floor_us)))
    return HtmlTable(
        "A step with each remedy",
        ["", "", "a step", "as fast"],
        [*first, *shown],
        how=HOW_REMEDIES,
        figures=frozenset({2, 3}),
        charts=frozenset({1}),
        keys=keys,
    )


def _without(title: str, us: float, *, top: float, floor_us: float | None) -> list[Cell]:
    """A run without any remedy."""
    label = f"{title[:1].lower()}{title[1:]} {duration(us)} a step"
    return [title, measures([BarMeasure("now", us)], top=top, label=label, mark=floor_us), duration(us), ""]


def _together(rows: RemedyRows) -> str:
    """Which of them, by their numbers."""
    numbers = [str(number) for number in rows.numbers if number <= MOST_REMEDIES]
    title = f"{rows.together.title}: {', '.join(numbers)}" if numbers else rows.together.title
    return ", ".join(filter(None, (title, rows.together.without)))


def _reaches(row: RemedyRow) -> Iterator[float]:
    if row.prediction is not None:
        yield row.prediction.high_us
    if row.outcome is not None and row.outcome.step_us is not None:
        known = bounds(row.outcome.low_us, row.outcome.high_us)
        yield row.outcome.step_us if known is None else known[1]


def _row(row: RemedyRow, *, top: float, floor_us: float | None) -> list[Cell]:
    """The proof's figures, where there is one, else the prediction's."""
    bars, gain, outcome = [], row.prediction, row.outcome
    if gain is not None:
        bars.append(BarMeasure("predicted", gain.step_us, bounds(gain.low_us, gain.high_us)))
    if outcome is not None and outcome.step_us is not None:
        bars.append(BarMeasure("proved", outcome.step_us, bounds(outcome.low_us, outcome.high_us)))
    words = "; ".join(filter(None, (row.predicted and f"predicted {row.predicted}", row.proved)))
    chart: Cell = measures(bars, top=top, label=words, mark=floor_us) if bars else words
    return [row.title, chart, duration(row.newest[0]), _gain(row)]


def _gain(row: RemedyRow) -> str:
    speedup = row.newest[1]
    return "not recommended" if row.is_refused else "" if speedup is None else times(speedup)


def _card(row: RemedyRow) -> Card:
    predicted = f"{row.step} a step, {row.interval}" if row.prediction is not None else ""
    figures = [("predicted", predicted), ("tried", row.proved), ("confidence", row.confidence)]
    texts = [("", row.why), ("samples", row.samples), ("costs", row.costs), ("change", row.hint)]
    edit = row.edit
    return Card(
        title=row.title,
        gain=_gain(row),
        figures=[(name, text) for name, text in figures if text],
        texts=[(name, text) for name, text in texts if text],
        refused=row.is_refused,
        file="" if edit is None else f"{edit.file}:{edit.line}",
        diff=[] if edit is None else list(_diff(edit.diff)),
    )


def _diff(diff: str) -> Iterator[tuple[str, str]]:
    """Lines with their kind; the names of the files stand above them already."""
    lines = list(dropwhile(lambda line: line.startswith(("--- ", "+++ ")), diff.splitlines()))
    for line in lines[:MOST_DIFF_LINES]:
        yield _DIFF.get(line[:1], "same"), line.expandtabs()
    if len(lines) > MOST_DIFF_LINES:
        yield "place", f"… and {len(lines) - MOST_DIFF_LINES} lines more"


# -- from doctor/report/html/sections/findings.py: What is worth looking at, heaviest first.


MOST_FINDINGS = 40


def findings(report: ReportData) -> Section | None:
    found = report.diagnosis.findings
    if not found:
        return None
    blocks = [
        Texts(
            [("", finding.evidence), ("→", finding.advice)],
            title=finding.text,
            figure=share(finding.weight) if finding.weight > 0 else "–",
        )
        for finding in found[:MOST_FINDINGS]
    ]
    lead = "The figure beside each is the share of a step that it concerns; a dash, that it has none."
    return Section("findings", "What to look at", list(blocks), lead=lead)
