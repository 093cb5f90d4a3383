"""What to do: each remedy with what it gains, as predicted and as proved, and the change; then what would not help."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.doctor.predict.prediction import Prediction
from headrace.doctor.remedies.model import Outcome, Prescription, Remedy

from ...figures import duration
from ...gains import helping, idle, interval, is_refused, outcome_of, predicted, proved, samples, times, title, together
from ..bars import Measure, measures
from ..blocks import Block, Card, Cards, Cell, Key, Section, Table
from ..report import Report

MOST = 24
"""Remedies that are shown."""
MOST_DIFF_LINES = 120
HOW = (
    "Bars begin at zero, and the shorter the better. A prediction comes from the recorded times of every batch, sent "
    "again through the workers, the queue and the device with the remedy in place; the line across its end is the "
    "interval that covers the truth in at least 80 of 100 cases. A proof is a run of the same command with the remedy "
    "in place. The broken line is the floor: no loader makes a step shorter."
)
_DIFF = {"+": "more", "-": "less", "@": "place"}


def remedies(report: Report) -> Section | None:
    prescription = report.prescription
    if prescription is None or not (prescription.remedies or prescription.stop):
        return None
    helps = helping(prescription)[:MOST]
    blocks: list[Block] = []
    if helps and _now_us(report) > 0:
        blocks.append(_chart(report, prescription, helps))
    if helps:
        blocks.append(Cards([_card(prescription, remedy) for remedy in helps]))
    if idle(prescription):
        rows: list[list[Cell]] = [[title(remedy), remedy.why] for remedy in idle(prescription)[:MOST]]
        blocks.append(Table("What would not help", ["remedy", "why not"], rows))
    return Section("remedies", "What to do", blocks, lead=prescription.stop)


def _now_us(report: Report) -> float:
    """A step as it is."""
    prescription, budget = report.prescription, report.budget
    if prescription is not None and prescription.floors is not None:
        return prescription.floors.observed_us
    return budget.mean_us if budget is not None else 0.0


def _chart(report: Report, prescription: Prescription, helps: list[Remedy]) -> Table:
    now_us = _now_us(report)
    floor_us = prescription.floors.replay_us if prescription.floors is not None else None
    rows: list[tuple[str, Prediction | None, Outcome | None]] = [
        (f"{place}. {title(remedy)}", remedy.prediction, outcome_of(prescription, [remedy.code]))
        for place, remedy in enumerate(helps, start=1)
    ]
    if len(helps) > 1:
        rows.append(("All that go together", prescription.best, together(prescription)))
    top = max([now_us, *(reach for _, gain, outcome in rows for reach in _reaches(gain, outcome))])
    first: list[Cell] = [
        "As it is",
        measures([Measure("now", now_us)], top=top, label=f"as it is {duration(now_us)} a step", mark=floor_us),
        duration(now_us),
        "",
    ]
    shown = [_row(label, gain, outcome, top=top, floor_us=floor_us) for label, gain, outcome in rows]
    keys = [Key("now", "as it is"), Key("predicted", "predicted")]
    if prescription.outcomes:
        keys.append(Key("proved", "proved"))
    if floor_us is not None:
        keys.append(Key("floor", "floor", duration(floor_us)))
    return Table(
        "A step with each remedy",
        ["", "", "a step", "as fast"],
        [first, *shown],
        how=HOW,
        figures=frozenset({2, 3}),
        charts=frozenset({1}),
        keys=keys,
    )


def _reaches(gain: Prediction | None, outcome: Outcome | None) -> Iterator[float]:
    if gain is not None:
        yield gain.high_us
    if outcome is not None and outcome.step_us is not None:
        yield outcome.high_us or outcome.step_us


def _row(
    label: str, gain: Prediction | None, outcome: Outcome | None, *, top: float, floor_us: float | None
) -> list[Cell]:
    """The proof's figures, where there is one, else the prediction's."""
    bars, words = [], []
    if gain is not None:
        bars.append(Measure("predicted", gain.step_us, gain.low_us, gain.high_us))
        words.append(f"predicted {predicted(gain)}")
    if outcome is not None:
        words.append(proved(outcome))
        if outcome.step_us is not None:
            bars.append(Measure("proved", outcome.step_us, outcome.low_us, outcome.high_us))
    step_us, speedup = _newest(gain, outcome)
    said = "not recommended" if is_refused(outcome) else "" if speedup is None else times(speedup)
    chart: Cell = measures(bars, top=top, label="; ".join(words), mark=floor_us) if bars else "; ".join(words)
    return [label, chart, duration(step_us), said]


def _newest(gain: Prediction | None, outcome: Outcome | None) -> tuple[float | None, float | None]:
    if outcome is not None and outcome.step_us is not None:
        return outcome.step_us, outcome.speedup
    return (None, None) if gain is None else (gain.step_us, gain.speedup)


def _card(prescription: Prescription, remedy: Remedy) -> Card:
    gain, outcome = remedy.prediction, outcome_of(prescription, [remedy.code])
    figures = []
    if gain is not None:
        between = interval(gain.low_us, gain.high_us)
        figures.append(("predicted", f"{duration(gain.step_us)} a step, {between}"))
    if outcome is not None:
        figures.append(("tried", proved(outcome)))
    figures.append(("confidence", remedy.confidence))
    texts = [("", remedy.why)]
    if outcome is not None and samples(outcome):
        texts.append(("samples", samples(outcome)))
    if remedy.costs:
        texts.append(("costs", ", ".join(remedy.costs)))
    if remedy.hint:
        texts.append(("change", remedy.hint))
    speedup = _newest(gain, outcome)[1]
    edit, refused = remedy.edit, is_refused(outcome)
    return Card(
        title=title(remedy),
        gain="not recommended" if refused else "" if speedup is None else times(speedup),
        refused=refused,
        figures=figures,
        texts=texts,
        file="" if edit is None else f"{edit.file}:{edit.line}",
        diff=[] if edit is None else list(_diff(edit.diff)),
    )


def _diff(diff: str) -> Iterator[tuple[str, str]]:
    """Lines with their kind; the names of the files stand above them already."""
    lines = [line for line in diff.splitlines() if not line.startswith(("--- ", "+++ "))]
    for line in lines[:MOST_DIFF_LINES]:
        yield _DIFF.get(line[:1], "same"), line.expandtabs()
    if len(lines) > MOST_DIFF_LINES:
        yield "place", f"… and {len(lines) - MOST_DIFF_LINES} lines more"
