"""What is worth looking at, heaviest first."""

from __future__ import annotations

from ...figures import share
from ..blocks import Section, Texts
from ..report import Report

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
