"""Work of the loop and costly lines: found, priced, and left alone where there is little."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machine_findings import quantities
from made_prescriptions import is_listed, made, prescribed, remedy
from made_sessions import MadeRun, made_session

from headrace.doctor.causes import diagnose
from headrace.doctor.causes.stages import COSTLY_LINE
from headrace.doctor.measure import Finding, main_view_of
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import SourceLine

RUN = MadeRun(stages={"decode:a": 4_000}, workers=2, forward=9_000, backward=2_000, optimizer=500)
"""2 ms a batch from two workers, 11.5 ms of computing."""


def with_work(session: Session, us: int) -> Session:
    steps = session.trainers[0].steps
    for row, (start, spans) in enumerate(zip(steps.start, steps.spans, strict=True)):
        steps.spans[row] = [("d", start + 100, us), *spans]
    return session


def findings(session: Session, code: str) -> list[Finding]:
    return [one for one in diagnose(session).findings if one.code == code]


def test_workers_that_do_the_work_of_the_loop_shorten_the_step_by_it(tmp_path: Path) -> None:
    session = with_work(made_session(tmp_path, RUN), 6_000)
    found = remedy(session, "data-work")
    assert found.helps
    assert found.prediction is not None
    assert found.prediction.step_us == pytest.approx(11_500 - 6_000, rel=0.15)


def test_without_workers_nobody_else_can_do_the_work(tmp_path: Path) -> None:
    session = with_work(made_session(tmp_path, MadeRun(workers=0, forward=9_000)), 6_000)
    assert not is_listed(session, "data-work")


def test_a_little_work_is_no_finding_and_no_remedy(tmp_path: Path) -> None:
    session = with_work(made_session(tmp_path, RUN), 100)
    assert findings(session, "data-work") == []
    assert "data-work" not in [one.code for one in prescribed(session).remedies]


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


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        ({"class": "litdata.streaming.dataset.StreamingDataset"}, "max_pre_download="),
        ({"class": "train.Images", "bases": ["streaming.base.dataset.StreamingDataset"]}, "predownload="),
        ({"class": "train.Images", "bases": ["torch.utils.data.dataset.Dataset"]}, None),
    ],
)
def test_workers_that_wait_for_shards_hear_of_caches(tmp_path: Path, dataset: dict[str, Any], said: str | None) -> None:
    facts = {"dataset": dataset["class"], "described": {"dataset": dataset}}
    run = MadeRun(stages={"read:file": 6_000, "wait:flock": 3_000, "decode:PIL": 1_000}, facts=facts)
    (found,) = [one.advice for one in diagnose(made_session(tmp_path, run)).findings if one.code == "stage-read"]
    assert any(option in found for option in ("max_pre_download=", "predownload=")) == (said is not None)
    assert (said or "") in found
