"""Lines of the script that take most of making a batch, by stack samples."""

from __future__ import annotations

import pytest
from machine_findings import quantities
from made_prescriptions import made
from made_sessions import MadeRun

from headrace.doctor.causes import diagnose
from headrace.doctor.causes.stages import COSTLY_LINE
from headrace.doctor.measure import Finding, main_view_of
from headrace.doctor.session.producers import SourceLine

READ, DRAW = "/home/ada/train.py:31:Photos.__getitem__", "/home/ada/train.py:40:drawn"
LABEL = "/home/ada/labels.py:7:of"


def found(shares: dict[str, float]) -> tuple[list[Finding], float]:
    """Return the findings for lines with these shares of making a batch, and the share of a step that waits."""
    session = made(MadeRun(stages={"getitem:rest": 20_000}))
    for maker in session.makers:
        busy = sum(maker.batches.fetched) - sum(maker.batches.start)
        maker.lines = [SourceLine(place, round(share * busy)) for place, share in shares.items()]
    view = main_view_of(session)
    assert view is not None
    return [one for one in diagnose(session).findings if one.code == COSTLY_LINE], view.wait_share or 0.0


def test_the_weight_of_a_line_is_its_share_of_the_wait() -> None:
    lines, wait = found({READ: 0.6, DRAW: 0.3, LABEL: 0.01})
    assert [quantities(one.text) for one in lines] == [["31", "60 %"], ["40", "30 %"]]
    assert [one.weight for one in lines] == pytest.approx([0.6 * wait, 0.3 * wait], rel=0.01)
    assert "(Photos.__getitem__)" in lines[0].text
    assert "/home" not in lines[0].text


def test_at_most_four_lines_are_named() -> None:
    lines, _ = found({f"/home/ada/train.py:{line}:of": 0.15 for line in range(6)})
    assert len(lines) == 4
