"""What the doctor could not see, what hung or failed, what measuring cost, and how to have this page again."""

from __future__ import annotations

import itertools

from headrace.doctor.causes.processes import hanging
from headrace.doctor.report.ending import last_words
from headrace.doctor.report.html.blocks import Block, Quote, Section, Texts
from headrace.doctor.report.html.report import Report
from headrace.doctor.report.notes import cost_words, note_texts

MOST, MOST_LINES, MOST_STACKS = 60, 60, 60


def notes(report: Report) -> Section | None:
    blocks: list[Block] = []
    said = last_words(report.session)
    if said:
        blocks.append(Quote("Last lines of the command", said[-MOST_LINES:]))
    blocks += [
        Quote(f"Process {process.pid} hangs here", stack.rstrip().splitlines()[-MOST_LINES:])
        for process, stack in itertools.islice(hanging(report.session), MOST_STACKS)
    ]
    texts = [(head.rstrip(": "), text.strip()) for head, text in note_texts(report.session)]
    if texts:
        blocks.append(Texts(texts[:MOST]))
    if report.diagnosis.cost.evidence_bytes > 0:
        blocks.append(Texts([("What measuring cost", cost_words(report.diagnosis.cost))]))
    if report.again:
        blocks.append(Texts([("Again", report.again)]))
    return Section("notes", "Notes", blocks) if blocks else None
