"""What is said of a run on Headrace's own Loader: the stage that limits, its threads, and what to change."""

from __future__ import annotations

from typing import Any

import pytest
from machine_findings import quantities
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


def facts(step: int, *, map_workers: int = 0, idle_s: float = 0.0, fetched: int = 0, **busy_s: float) -> dict[str, Any]:
    """Counted until a step, of stages that work so many seconds a step."""
    seconds = step * STEP_US / 1e6
    stages = dict.fromkeys(("read", "probe", "decode", "resample"), 0.0) | busy_s
    return {
        "batches": step,
        "samples": 8 * step,
        "threads": 2,
        "map_workers": map_workers,
        "wall_s": seconds,
        "idle_s": idle_s * step,
        "python_s": 0.001 * step,
        "stages": {name: [8 * step, value * step] for name, value in stages.items()},
        **(fetch_facts(step, fetched) if fetched else {}),
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


def limit(**of_feed: Any) -> str:
    """What is said of a Loader that limits a run."""
    (found,) = [one for one in diagnosis(60_000, **of_feed).statements if one.code == "loader-limit"]
    return found.text


def test_decode_on_fewer_threads_than_cores() -> None:
    of_feed = {"decode": 0.15, "resample": 0.04, "idle_s": 0.01}
    found = diagnosis(60_000, **of_feed)
    assert codes(found) == ["input-bound", "causes", "loader-limit"]
    assert figures(found)[:5] == ["100 ms", "60 %", "79 %", "2", "21 %"]
    assert named("decode:headrace.Loader") in found.verdict.text
    assert quantities(limit(**of_feed))[:3] == ["2", "95 %", "79 %"]
    assert "threads=8 (now 2)" in limit(**of_feed)


@pytest.mark.parametrize(
    ("of_feed", "advised"),
    [
        ({"cores": 2, "decode": 0.15, "idle_s": 0.01}, "headrace pack"),
        ({"read": 0.18, "decode": 0.01}, "cache="),
        ({"decode": 0.02, "map": 0.19, "map_workers": 2, "idle_s": 0.18}, "map_workers (now 2)"),
        ({"decode": 0.02, "map": 0.05, "idle_s": 0.18}, "map_workers="),
        ({"decode": 0.02, "idle_s": 0.18, "fetched": 10_000}, 'order="windowed"'),
        ({"decode": 0.02, "idle_s": 0.18, "fetched": 4_000_000}, "Requests are large"),
    ],
    ids=["a thread for each core", "reading", "map in processes", "Python", "small requests", "large requests"],
)
def test_what_limits_a_loader_and_what_changes_it(of_feed: dict[str, Any], advised: str) -> None:
    assert advised in limit(**of_feed)


def test_figures_of_what_limits_a_loader() -> None:
    """Threads that Python holds up, and a store whose answers are waited for."""
    assert quantities(limit(decode=0.02, map=0.05, idle_s=0.18))[:2] == ["2", "10 %"]
    assert quantities(limit(decode=0.02, idle_s=0.18, fetched=10_000))[0] == "83 %"


@pytest.mark.parametrize("limits", [{"decode": 0.15}, {"map": 0.15}])
def test_a_loader_that_keeps_up(limits: dict[str, float]) -> None:
    found = diagnosis(1_000, idle_s=0.05, **limits)
    assert codes(found) == ["not-input-bound", "loader-keeps-up"]
    assert figures(found)[:3] == ["100 ms", "1.0 %", "2"]


def fetch_facts(step: int, each: int) -> dict[str, Any]:
    """Counted until a step, of 80 requests a step for so many bytes."""
    counts: dict[str, float] = {"requests": 80, "bytes": 80 * each, "retries": 1, "throttled": 0, "hedges": 0}
    counts |= {"wait_seconds": 0.09, "stall_seconds": 0.05}  # a wait that ready batches hide is no stall
    fetch = {f"fetch_{name}": count * step for name, count in counts.items()}
    return {
        "consumer_wait_s": 0.06 * step,
        "fetch": fetch,
        "fetch_latency_s": {"0.5": 0.021, "0.95": 0.03, "0.99": None},
    }
