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
            title=f"{share(finding.weight)} of a step: {finding.text}" if finding.weight > 0 else finding.text,
        )
        for finding in found[:MOST]
    ]
    return Section("findings", "What to look at", list(blocks))
