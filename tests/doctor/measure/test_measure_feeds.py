"""What is said of a run on Headrace's own Loader: the stage that limits, its threads, and what to change."""

from __future__ import annotations

from typing import Any

import pytest
from report_pages import said

from headrace.doctor.causes import diagnose
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


def verdict(wait_us: int, cores: int = 8, **of_feed: Any) -> str:
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
    return said(diagnose(session))


def test_decode_on_fewer_threads_than_cores() -> None:
    assert verdict(60_000, decode=0.15, resample=0.04, idle_s=0.01) == (
        "A step takes 100 ms and waits 60 % of it for data, mostly decode (headrace.Loader). "
        "79 % of the wait is decode (headrace.Loader) in 2 threads, "
        "21 % transforms (headrace.Loader). headrace.Loader's 2 threads work 95 % of the time, 79 % of it decode. "
        "Look at threads=8 (now 2): there are cores left for them."
    )


def test_decode_with_a_thread_for_each_core() -> None:
    said = verdict(60_000, cores=2, decode=0.15, idle_s=0.01)
    assert "Look at cache=, a smaller size of the files, or headrace pack" in said


def test_reading() -> None:
    said = verdict(60_000, read=0.18, decode=0.01)
    assert "of it read" in said
    assert "Look at cache=, or at where the files lie" in said


def test_a_map_in_processes() -> None:
    said = verdict(60_000, decode=0.02, map=0.19, map_workers=2, idle_s=0.18)
    assert "is the script's map function" in said
    assert "headrace.Loader waits for map= in 2 map workers. Look at map_workers (now 2)" in said


def test_python_that_holds_the_loader_up() -> None:
    said = verdict(60_000, decode=0.02, map=0.05, idle_s=0.18)
    assert "headrace.Loader's 2 threads work only 10 % of the time: Python holds headrace.Loader up" in said
    assert "map_workers=" in said


@pytest.mark.parametrize("limits", [{"decode": 0.15}, {"map": 0.15}])
def test_a_loader_that_keeps_up(limits: dict[str, float]) -> None:
    said = verdict(1_000, idle_s=0.05, **limits)
    assert said.startswith("Not input-bound: a step takes 100 ms and waits 1.0 % of it for data.")
    assert "headrace.Loader keeps up: its 2 threads work " in said


@pytest.mark.parametrize(("each", "advice"), [(10_000, 'order="windowed"'), (4_000_000, "Requests are large")])
def test_a_store_whose_answers_are_waited_for(each: int, advice: str) -> None:
    """Small requests want neighbours in one; large ones a faster link."""
    said = verdict(60_000, decode=0.02, idle_s=0.18, fetched=each)
    assert "100 % of the wait is remote reads (headrace.Loader)" in said
    assert "headrace.Loader waits for its store's answers 83 % of the time that a batch is waited for" in said
    assert advice in said


def fetch_facts(step: int, each: int) -> dict[str, Any]:
    """Counted until a step, of 80 requests a step for so many bytes."""
    counts: dict[str, float] = {"requests": 80, "bytes": 80 * each, "retries": 1, "throttled": 0, "hedges": 0}
    counts |= {"wait_seconds": 0.09, "stall_seconds": 0.05}  # a wait that ready batches hide is no stall
    fetch = {f"fetch_{name}": count * step for name, count in counts.items()}
    return {
        "consumer_wait_s": 0.06 * step,
        "fetch": {**fetch, "fewest_requests": 40 * step},
        "fetch_latency_s": {"0.5": 0.021, "0.95": 0.03, "0.99": None},
    }
