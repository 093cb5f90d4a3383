"""What is worth looking at, heaviest first."""

from __future__ import annotations

from headrace.doctor.report.escaping import share
from headrace.doctor.report.html.blocks import Section, Texts
from headrace.doctor.report.html.report import Report

MOST = 40


def findings(report: Report) -> Section | None:
    found = report.diagnosis.findings
    if not found:
        return None
    blocks = [
        Texts(
            [("", finding.evidence), ("→", finding.advice)],
            title=finding.text,
            figure=share(finding.weight) if finding.weight > 0 else "–",
        )
        for finding in found[:MOST]
    ]
    lead = "The figure beside each is the share of a step that it concerns; a dash, that it has none."
    return Section("findings", "What to look at", list(blocks), lead=lead)
