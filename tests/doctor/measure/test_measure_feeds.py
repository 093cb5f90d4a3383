"""What is said of a run on Headrace's own Loader: the stage that limits, its threads, and what to change."""

from __future__ import annotations

from typing import Any

import pytest
from report_pages import codes, figures

from headrace.doctor.causes import diagnose
from headrace.doctor.causes.stage_names import named
from headrace.doctor.measure.diagnosis import Diagnosis
from headrace.doctor.session.model import CommandOutcome, Machine, Session
from headrace.doctor.session.trainers import (
    LoaderFacts,
    LoaderFeed,
    OptimizerSteps,
    ReceivedBatches,
    Trainer,
    TrainerPass,
)

STEPS = 40
STEP_US = 100_000
HOST = "a"


def facts(step: int, *, limit: str, idle_s: float = 0.0, **busy_s: float) -> dict[str, Any]:
    """Counted until a step, of stages that work so many seconds a step."""
    stages = dict.fromkeys(("read", "probe", "decode", "resample"), 0.0) | busy_s
    counts = {"batches": step, "samples": 8 * step, "threads": 2, "wall_s": step * STEP_US / 1e6}
    return {
        **counts,
        "limit": limit,
        "idle_s": idle_s * step,
        "python_s": 0.001 * step,
        "stages": {name: [8 * step, value * step] for name, value in stages.items()},
    }


def diagnosis(wait_us: int, cores: int = 8, **of_feed: Any) -> Diagnosis:
    """Of a run whose every step waits so long for a Loader."""
    starts = [number * STEP_US for number in range(STEPS)]
    none: list[Any] = [None] * STEPS
    trainer = Trainer(
        pid=7,
        host=HOST,
        rank=0,
        steps=OptimizerSteps(
            number=list(range(STEPS)),
            start=starts,
            end=[start + STEP_US for start in starts],
            spans=[[] for _ in starts],
            probe=none,
            device=none,
            ready=none,
            cpu=none,
            delay=none,
        ),
        gets=ReceivedBatches(
            pass_=[0] * STEPS,
            index=list(range(STEPS)),
            start=starts,
            duration=[wait_us] * STEPS,
            arrived=none,
            unpickle=none,
            pin_start=none,
            pin=none,
            bytes=none,
            shape=none,
            unpickle_cpu=none,
        ),
        passes=[TrainerPass(0, 0, -10, -5, 0, [7])],
        loaders=[LoaderFacts(0, {"num_workers": 0, "threads": 2, "dataset": "headrace.loader.loader.Loader"})],
        feeds=[LoaderFeed(0, step * STEP_US, facts(step, **of_feed)) for step in range(0, STEPS, 5)],
    )
    session = Session("", "observe", "0", 0, STEPS, CommandOutcome(["python"], 0, "finished", 1), trainers=[trainer])
    session.machines = [Machine(HOST, {"cores": cores})]
    return diagnose(session)


def test_a_loader_that_limits_a_run_names_its_stage() -> None:
    found = diagnosis(60_000, limit="decode", decode=0.15, resample=0.04, idle_s=0.01)
    assert codes(found) == ["input-bound", "causes", "loader-limit"]
    assert figures(found)[:3] == ["100 ms", "60 %", "100 %"]
    assert named("decode:headrace.Loader") in found.verdict.text


@pytest.mark.parametrize(
    ("limit", "advised"),
    [("decode", "threads="), ("read", "cache="), ("map", "map_workers="), ("python", "GIL"), ("store", "windowed")],
)
def test_what_limits_a_loader_and_what_changes_it(limit: str, advised: str) -> None:
    (found,) = [one for one in diagnosis(60_000, limit=limit, decode=0.15).statements if one.code == "loader-limit"]
    assert limit in found.text
    assert advised in found.text


@pytest.mark.parametrize("busy", [{"decode": 0.15}, {"map": 0.15}])
def test_a_loader_that_keeps_up(busy: dict[str, float]) -> None:
    found = diagnosis(1_000, limit="consumer", idle_s=0.05, **busy)
    assert codes(found) == ["not-input-bound", "loader-keeps-up"]
    assert figures(found)[:3] == ["100 ms", "1.0 %", "2"]
