"""Data work in the loop and full garbage collections: found, priced, and left alone where there is little."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
from machine_findings import quantities
from made_prescriptions import is_listed, prescribed, remedy
from made_sessions import MadeRun, made_session
from probing import probed, records
from report_pages import said
from training_loops import Loop, loader

from headrace.doctor.causes import diagnose
from headrace.doctor.measure.diagnosis import Finding
from headrace.doctor.probe.batch_production import FullCollections
from headrace.doctor.session.model import GarbageCollections, Session

RUN = MadeRun(stages={"decode:a": 4_000}, workers=2, forward=9_000, backward=2_000, optimizer=500)
"""2 ms a batch from two workers, 11.5 ms of computing."""


def with_work(session: Session, us: int) -> Session:
    steps = session.trainers[0].steps
    for row, (start, spans) in enumerate(zip(steps.start, steps.spans, strict=True)):
        steps.spans[row] = [("d", start + 100, us), *spans]
    return session


def with_collections(session: Session, role: str, spent: int) -> Session:
    for process in session.processes:
        if process.role == role:
            last = max(session.trainers[0].steps.end)
            first = min(session.trainers[0].steps.start)
            process.collections = [
                GarbageCollections(first - 1, 5, 9 * spent, 9 * spent),
                GarbageCollections(last, 10, spent, spent // 4, last - spent),
                GarbageCollections(last, 1, 9 * spent, 9 * spent, first - 9 * spent),  # while the model was built
                GarbageCollections(last + 9, 1, 9 * spent, 9 * spent, last + 1),
            ]
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


def test_collections_of_workers_concern_as_much_of_a_step_as_is_waited_for(tmp_path: Path) -> None:
    session = made_session(tmp_path, MadeRun(stages={"decode:a": 20_000}, cpu=1.0))
    steps = session.trainers[0].steps
    with_collections(session, "worker", (steps.end[-1] - steps.start[0]) // 4)
    (found,) = findings(session, "full-gc")
    assert found.weight == pytest.approx(0.34 * (diagnose(session).wait_share or 0), rel=0.01)
    assert quantities(found.text)[:1] == ["34 %"]
    assert found.evidence.startswith("20 collections, ")
    assert found.text in said(diagnose(session))


def test_collections_of_the_training_process_count_within_its_measured_steps(tmp_path: Path) -> None:
    session = made_session(tmp_path, RUN)
    steps = session.trainers[0].steps
    with_collections(session, "trainer", (steps.end[-1] - steps.start[0]) // 10)
    (found,) = findings(session, "full-gc")
    assert "training process" in found.text
    assert found.weight == pytest.approx(0.1, abs=0.03)
    assert found.evidence.startswith("10 collections, ")


def test_few_collections_are_no_finding_and_no_remedy(tmp_path: Path) -> None:
    session = with_collections(made_session(tmp_path, RUN), "trainer", 20)
    assert findings(session, "full-gc") == []
    assert "gc-freeze" not in [one.code for one in prescribed(session).remedies]


def test_only_full_collections_are_counted_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted, callbacks = FullCollections(), list(gc.callbacks)
    counted.watch()
    try:
        gc.collect(0)
        assert counted.records(7) == []
        gc.collect()
        gc.collect()
        ((kind, time, count, spent, longest, since),) = counted.records(10**7)
    finally:
        counted.remove()
    assert (kind, time, count) == ("gc", 10**7, 2)
    assert time - since >= spent
    assert 0 < longest <= spent
    assert counted.records(8) == []
    assert gc.callbacks == callbacks


def test_a_trainers_collections_are_in_its_evidence(tmp_path: Path) -> None:
    def collected(batches: Any) -> Any:
        for batch in batches:
            gc.collect()
            yield batch

    with probed(tmp_path):
        Loop().train(collected(loader(12)))
    assert sum(record[2] for record in records(tmp_path, "gc")) >= 3
