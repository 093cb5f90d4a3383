"""Threads of the training process that spin while it waits: found where they take cores that batches need."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from machine_findings import quantities
from made_prescriptions import COLUMNS, made
from made_sessions import MadeRun
from report_pages import said

from headrace.doctor.causes import cores, diagnose
from headrace.doctor.causes.cores import SPINNING, spinning_threads
from headrace.doctor.measure import host_of, main_view_of
from headrace.doctor.session.model import Session

pytestmark = pytest.mark.usefixtures("kept_simulations")

RUN = MadeRun(steps=40, forward=4_000, backward=6_000, cpu=1.0)
SPUN_US = 9_000
OPENMP = {"torch_threads": 2, "parallel_backend": "OpenMP", "wait_policy": None}


def spinning(spun_us: int = SPUN_US, cores: int = 2, busy: float = 2.0, run: MadeRun = RUN, **facts: Any) -> Session:
    """A run whose training process computes with two threads, each step's time on both."""
    columns = COLUMNS | {"cpu_cores_busy": busy, "cpu_cores_other": 0.0}
    session = made(run, facts={"cores": cores}, columns=columns)
    (trainer,) = session.trainers
    trainer.gets.others_cpu = [spun_us] * len(trainer.gets.start)
    trainer.steps.cpu = [2 * (end - start) for start, end in zip(trainer.steps.start, trainer.steps.end, strict=True)]
    trainer.steps.delay = [0] * len(trainer.steps.start)
    for process in session.processes:
        own = {**OPENMP, **facts} if process.pid == trainer.pid else {"torch_threads": 1}
        process.facts["facts"] = own
    return session


def codes(session: Session) -> list[str]:
    return [one.code for one in diagnose(session).findings]


def test_threads_that_spin_where_no_core_is_to_spare() -> None:
    session = spinning()
    (found,) = [one for one in diagnose(session).findings if one.code == SPINNING]
    assert found.weight == pytest.approx(SPUN_US / diagnose(session).budgets[0].mean_us)
    assert quantities(found.evidence)[0] == "2"
    assert "OMP_WAIT_POLICY=passive" in found.advice
    assert "threads" not in codes(session)  # said once
    assert found.text in said(diagnose(session))


def test_a_step_that_is_longer_alongside_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    session = spinning(spun_us=0)
    monkeypatch.setattr(cores, "at_hand_us", lambda view: 4_000.0)
    (found,) = [one for one in diagnose(session).findings if one.code == SPINNING]
    assert quantities(found.text)[-2:] == ["10.5 ms", "4.0 ms"]
    assert found.weight == pytest.approx(6_500 / diagnose(session).budgets[0].mean_us, rel=0.01)


def test_threads_that_do_no_work_of_a_step_do_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "replayed_threads", lambda trainer: 1.1)
    assert SPINNING not in codes(spinning())


def test_workers_with_pools_of_their_own_are_too_many_threads_still() -> None:
    session = spinning()
    for process in session.processes:
        if process.pid != session.trainers[0].pid:
            process.facts["facts"] = {"torch_threads": 8}
    assert {SPINNING, "threads"} <= set(codes(session))


@pytest.mark.parametrize(
    "session",
    [
        spinning(busy=1.0),
        spinning(spun_us=100),
        spinning(wait_policy="OMP_WAIT_POLICY=passive"),
        spinning(torch_threads=1),
        spinning(device="NVIDIA H100"),
    ],
    ids=["cores are free", "hardly", "asleep already", "one thread", "a GPU computes"],
)
def test_threads_that_do_no_harm(session: Session) -> None:
    assert SPINNING not in codes(session)


def test_threads_that_spin_beside_a_loader_of_headraces_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "at_hand_us", lambda view: 4_000.0)
    session = spinning()
    view = main_view_of(session)
    assert view is not None
    own = replace(view, batch_production=[replace(view.batch_production[0], workers=0, threads=2)])
    host = host_of(session, view.trainer)
    assert host is not None
    monkeypatch.setattr(type(host), "workers", 0)
    found = spinning_threads(host, own)
    assert found is not None
    assert quantities(found.text)[-2:] == ["10.5 ms", "4.0 ms"]
    assert "in waits" not in found.evidence  # a Loader's threads compute in them
    assert spinning_threads(host, replace(own, batch_production=[])) is None
