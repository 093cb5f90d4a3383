"""The page's sections, in order. Each is None where there is nothing to say."""

from __future__ import annotations

from collections.abc import Callable

from headrace.doctor.report.html.blocks import Section
from headrace.doctor.report.html.machine_sections import environment
from headrace.doctor.report.html.remedy_sections import remedies
from headrace.doctor.report.html.report import Report
from headrace.doctor.report.html.sections.anatomy import anatomy
from headrace.doctor.report.html.sections.findings import findings
from headrace.doctor.report.html.sections.floors import floors
from headrace.doctor.report.html.sections.notes import notes
from headrace.doctor.report.html.sections.queue import queue
from headrace.doctor.report.html.sections.ranks import ranks
from headrace.doctor.report.html.sections.samples import samples
from headrace.doctor.report.html.sections.waits import waits
from headrace.doctor.report.html.step_sections import timeline
from headrace.doctor.report.html.worker_sections import workers

SECTIONS: tuple[Callable[[Report], Section | None], ...] = (
    anatomy,
    remedies,
    floors,
    timeline,
    waits,
    workers,
    queue,
    ranks,
    samples,
    findings,
    environment,
    notes,
)


def sections(report: Report) -> list[Section]:
    made = [section(report) for section in SECTIONS]
    return [section for section in made if section is not None]
