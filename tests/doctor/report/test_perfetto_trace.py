"""The trace: valid, complete, and true to the session's times."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_reports import STEP_US, TRAINER, WORKERS, made_diagnosis, made_session
from made_sessions import MadeRun
from made_sessions import made_session as simulated
from trace_format import faults, names, tracks

from headrace.doctor.causes.findings import diagnose
from headrace.doctor.report.trace import Slice, by_start, nested, trace, trace_events
from headrace.doctor.session.trainers import MeasuredWindow, ReceivedBatches, ReplayedBatches

WINDOWS, LOOP, DEVICE, MAKING = 1, 2, 3, 4


@pytest.fixture(scope="module")
def events() -> list[dict[str, Any]]:
    return list(trace_events(made_session(8)))


def test_is_one_json_document_with_the_verdict_and_the_cost() -> None:
    whole = json.loads("".join(trace(made_session(8), made_diagnosis())))
    assert whole["otherData"]["verdict"] == made_diagnosis().verdict.text
    assert whole["otherData"]["cost_of_measuring"]["step_us"] == 48.0
    assert whole["traceEvents"] == json.loads(json.dumps(list(trace_events(made_session(8)))))


def test_is_valid(events: list[dict[str, Any]]) -> None:
    assert faults(events) == []


def test_the_checker_can_fail(events: list[dict[str, Any]]) -> None:
    slices = [event for event in events if event["ph"] == "X"]
    late = replace_in(events, slices[3], dur=slices[3]["dur"] + 10**7)
    lonely = [event for event in events if event["ph"] != "f"]
    unnamed = [event for event in events if event["name"] != "thread_name"]
    odd = [*events, {"ph": "B", "name": "x"}]
    assert all(map(faults, (late, lonely, unnamed, odd)))


def test_each_process_has_a_named_group_of_tracks(events: list[dict[str, Any]]) -> None:
    assert {process: text.split()[:2] for process, text in names(events, "process_name").items()} == {
        (TRAINER, 0): ["rank", "0"],
        (WORKERS[0], 0): ["worker", "0"],
        (WORKERS[1], 0): ["worker", "1"],
        (1_000_000_000, 0): ["machine", "box"],
    }
    assert names(events, "thread_name")[TRAINER, LOOP] == "training loop"


def test_the_loop_shows_a_step_with_its_parts_in_order(events: list[dict[str, Any]]) -> None:
    loop = [event for event in tracks(events)[TRAINER, LOOP] if event["name"] != "iter(loader 0)"]
    step = [(event["name"], event["ts"] - 1_000_000, event["dur"]) for event in loop[:6]]
    assert step == [
        ("step 0", 0, STEP_US),
        ("data wait", 0, 70_000),
        ("host to device", 70_000, 1_200),
        ("forward", 71_200, 9_000),
        ("backward", 80_200, 16_000),
        ("optimizer", 96_200, 3_400),
    ]


def test_the_device_is_never_ahead_of_the_loop(events: list[dict[str, Any]]) -> None:
    waits = [event for event in tracks(events)[TRAINER, DEVICE] if event["name"] == "waits for a batch"]
    assert len(waits) == 8
    assert [event["ts"] for event in waits] == [1_000_000 + step * STEP_US + 200 for step in range(8)]
    assert all(event["dur"] == pytest.approx(69_900) for event in waits)


@pytest.fixture(scope="module")
def measured() -> list[dict[str, Any]]:
    """Two warm-up steps, two observed ones, four on copies of which the first settles, and a batch that is drained."""
    session = made_session(8)
    (trainer,) = session.trainers
    trainer.windows = [
        MeasuredWindow("observe", 2, 2, 0, trainer.steps.end[1], trainer.steps.end[3]),
        MeasuredWindow("replay", 4, 4, 1, trainer.steps.end[3], trainer.steps.end[7]),
        MeasuredWindow("drain", 8, 0, 0, trainer.steps.end[7] + 50, trainer.steps.end[7] + 950),
    ]
    _keep(trainer.gets, 4)
    trainer.steps.spans[-1] = trainer.steps.spans[-1][1:]  # nothing goes to a device
    trainer.replays = ReplayedBatches(
        pass_=[0] * 4, start=[at + 30 for at in trainer.steps.start[4:]], duration=[200] * 4
    )
    trainer.drained = ReceivedBatches(
        pass_=[0], index=[4], start=[trainer.steps.end[7] + 60], duration=[800], arrived=[None], unpickle=[None]
    )
    return list(trace_events(session))


def _keep(gets: ReceivedBatches, rows: int) -> None:
    for field in fields(gets):
        setattr(gets, field.name, getattr(gets, field.name)[:rows])


def test_the_windows_of_a_measured_run_stand_above_its_loop(measured: list[dict[str, Any]]) -> None:
    assert faults(measured) == []
    assert names(measured, "thread_name")[TRAINER, WINDOWS] == "windows"
    windows = [(one["name"], one["ts"], one["dur"], one["args"]) for one in tracks(measured)[TRAINER, WINDOWS]]
    assert windows == [
        ("observe", 1_200_000, 200_000, {"first_step": 2, "steps": 2, "settling_steps": 0}),
        ("replay", 1_400_000, 400_000, {"first_step": 4, "steps": 4, "settling_steps": 1}),
        ("drain", 1_800_050, 900, {}),
    ]


def test_a_replayed_step_can_be_told_from_an_observed_one(measured: list[dict[str, Any]]) -> None:
    loop = tracks(measured)[TRAINER, LOOP]
    steps = {one["name"]: one["args"].get("window") for one in loop if one["name"].startswith("step ")}
    assert list(steps.values()) == [None, None, "observe", "observe", "replay, settling", "replay", "replay", "replay"]
    fed = [one["name"].split()[0] for one in loop if one["name"].startswith(("data wait", "copy of", "drained"))]
    assert fed == ["data"] * 4 + ["copy"] * 4 + ["drained"]
    forward = [one for one in loop if one["name"] == "forward"][-1]
    assert forward["ts"] == 1_700_230  # where the copy had been made


def test_a_run_that_is_only_observed_has_no_such_track(events: list[dict[str, Any]]) -> None:
    assert (TRAINER, WINDOWS) not in names(events, "thread_name")


def test_an_arrow_leads_from_each_batch_to_its_next(events: list[dict[str, Any]]) -> None:
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert len(starts) == 8
    for number, start in starts.items():
        made = _holding(events, start, MAKING)
        received = _holding(events, ends[number], LOOP)
        assert made["name"] == f"batch {received['args']['batch']}"


def test_the_queue_is_counted(events: list[dict[str, Any]]) -> None:
    counts = [event for event in events if event["ph"] == "C" and event["name"] == "batches ready"]
    assert [event["ts"] for event in counts] == sorted(event["ts"] for event in counts)
    assert counts[-1]["args"] == {"value": 0}
    assert min(event["args"]["value"] for event in counts) >= 0


def test_what_was_not_measured_is_no_counter(events: list[dict[str, Any]]) -> None:
    counters = {event["name"] for event in events if event["ph"] == "C"}
    assert "cpu_cores_busy" in counters
    assert "cpu_throttled_cores" not in counters


def test_the_same_pid_on_two_hosts_is_two_groups() -> None:
    session = made_session(2)
    other = replace(session.trainers[0], host="far", rank=1)
    found = list(trace_events(replace(session, trainers=[*session.trainers, other])))
    assert faults(found) == []
    assert len({pid for pid, _ in names(found, "process_name")}) == 5


@pytest.mark.parametrize(
    "run",
    [
        MadeRun(),
        MadeRun(workers=0),
        MadeRun(gpu=True, steps=12),
        MadeRun(stages={"decode:x": 1}, forward=0, backward=0, optimizer=1, steps=50),
    ],
)
def test_simulated_runs_are_valid(run: MadeRun, tmp_path: Path) -> None:
    found = list(trace_events(simulated(tmp_path, run)))
    assert faults(found) == []
    assert sum(event["name"].startswith("step ") for event in found) == run.steps


def test_a_session_without_anything_is_valid() -> None:
    session = replace(made_session(0), trainers=[], makers=[], machines=[])
    assert json.loads("".join(trace(session, diagnose(session))))["traceEvents"] == []


@pytest.mark.long
def test_two_hundred_steps_are_small_and_long_runs_are_streamed() -> None:
    assert sum(map(len, trace(made_session(200), made_diagnosis()))) < 500_000
    session, diagnosis = made_session(1_000), made_diagnosis()
    tracemalloc.start()
    try:
        size = sum(map(len, trace(session, diagnosis)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < size / 2


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=12))
def test_slices_nest_and_keep_their_start(times: list[tuple[int, int]]) -> None:
    given_slices = [Slice(str(number), start, duration) for number, (start, duration) in enumerate(times)]
    found = list(nested(sorted(given_slices, key=by_start)))
    events = [
        {"ph": "X", "name": one.name, "cat": "", "pid": 1, "tid": 1, "ts": one.start, "dur": one.duration, "args": {}}
        for one in found
    ]
    named = [
        {"ph": "M", "name": kind, "pid": 1, "tid": tid, "args": {"name": "x"}}
        for kind, tid in (("process_name", 0), ("thread_name", 1))
    ]
    assert faults([*named, *events]) == []
    by_name = {one.name: one for one in given_slices}
    assert all(one.start == by_name[one.name].start and one.duration <= by_name[one.name].duration for one in found)


def replace_in(events: list[dict[str, Any]], event: dict[str, Any], **changes: Any) -> list[dict[str, Any]]:
    return [one | changes if one is event else one for one in events]


def _holding(events: list[dict[str, Any]], end: dict[str, Any], tid: int) -> dict[str, Any]:
    """The outermost slice but a step that an arrow's end lies in."""
    assert end["tid"] == tid
    return next(
        one
        for one in tracks(events)[end["pid"], tid]
        if one["ts"] <= end["ts"] < one["ts"] + one["dur"] and not one["name"].startswith("step ")
    )
