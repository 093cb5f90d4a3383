"""Evidence files as probes leave them, and their merging into one session."""

from __future__ import annotations

import json

import pytest
from made_sessions import (
    MadeRun,
    made_session,
    outcome,
    process,
    read,
    simulate,
    write_evidence,
    write_run,
    write_settings,
)

from headrace.doctor.session import FailedReplay
from headrace.doctor.session.evidence import ProcessLine, StepLine
from headrace.doctor.session.evidence_reader import EvidenceLines

STEP = ["step", 0, 10, 30, [["b", 5, 7], ["o", 13, 2]], 25, 18, 1]


def test_a_record_becomes_what_it_says(tmp_path):
    path = write_evidence(tmp_path, "one", [process(7), STEP])
    first, step = EvidenceLines(path).records
    assert isinstance(first, ProcessLine)
    assert step == StepLine(0, 10, 30, [("b", 5, 7), ("o", 13, 2)], 25, 18, 1)


@pytest.mark.parametrize(
    "line",
    [
        b'["step",0,10,30,[["b",5,7]',
        b'["step",0,"ten",30]',
        b'["note",1,"x","\xff\xfe"]',
        b"[]",
    ],
)
def test_a_damaged_line_costs_itself_only_and_is_counted(tmp_path, line):
    path = write_evidence(tmp_path, "one", [process(7), STEP])
    path.write_bytes(path.read_bytes() + line + b"\n" + json.dumps([*STEP[:1], 1, *STEP[2:]]).encode() + b"\n")
    lines = EvidenceLines(path)
    assert [type(record) for record in lines.records] == [ProcessLine, StepLine, StepLine]
    assert lines.damaged == 1


def test_a_file_cut_anywhere_gives_the_records_before_the_cut(tmp_path):
    path = write_evidence(tmp_path, "one", [process(7), STEP, STEP])
    whole = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        lines = EvidenceLines(path)
        assert len(lines.records) == sum(end <= length for end in ends)
        assert lines.damaged == (0 if length == 0 or length in ends else 1)
        assert lines.bytes == length


def test_processes_are_merged_by_their_role(tmp_path):
    session = made_session(tmp_path, MadeRun(workers=2))
    assert [(one.pid, one.role) for one in session.processes] == [(100, "trainer"), (101, "worker"), (102, "worker")]
    assert [(one.pid, one.worker, one.trainer) for one in session.makers] == [(101, 0, 100), (102, 1, 100)]
    (trainer,) = session.trainers
    assert trainer.steps.number == list(range(40))
    assert trainer.shapes == ["float32[4,3,8,8]"]
    assert trainer.steps.spans[0] == [("b", 11_000, 2_000), ("o", 13_000, 500)]  # absolute, not from the step's start
    assert trainer.steps.probe[0] == 20.0, "microseconds, from tenths"


def test_a_trainer_without_workers_is_its_own_maker(tmp_path):
    (maker,) = made_session(tmp_path, MadeRun(workers=0)).makers
    assert (maker.pid, maker.trainer, maker.worker) == (100, 100, None)
    assert maker.stages == ["decode:PIL.Image.load", "collate:default"]


def test_marks_and_stamps_find_their_steps_whenever_they_were_written(tmp_path):
    write_settings(tmp_path)
    steps = [["step", number, number * 10, number * 10 + 10, [], None] for number in range(3)]
    late = [["ready", 2, 25], *steps, ["device", 1, "swr", [15, 0, 2]], ["device", 9, "s", [95]]]
    write_evidence(tmp_path, "a", [process(7), *late])
    (trainer,) = read(tmp_path).trainers
    assert trainer.steps.device == [None, [("s", 1.5), ("w", 1.5), ("r", 1.7)], None]
    assert trainer.steps.ready == [None, None, 25]
    assert trainer.steps.probe == [None, None, None]


def test_names_that_were_lost_are_not_made_up(tmp_path):
    write_settings(tmp_path)
    batch = ["batch", 0, 0, 1, 2, 3, 0, 4, [[77, 1, 1, 1]]]
    write_evidence(tmp_path, "a", [process(7), ["worker", 0, {"id": 0, "parent": 1}], batch, ["lines", 3, [[78, 5]]]])
    (maker,) = read(tmp_path).makers
    assert maker.stages == ["other:unnamed"]
    assert maker.lines == []


def test_how_a_process_ended_and_what_it_said(tmp_path):
    write_settings(tmp_path)
    write_evidence(tmp_path, "a", [process(1), ["end", 90, "exit"]])
    write_evidence(tmp_path, "b", [process(2), ["error", 80, "ValueError: x"], ["end", 91, "exit"]])
    write_evidence(tmp_path, "c", [process(3), ["stack", 50, "hung", "File x"], ["note", 51, "killed", "gone"]])
    session = read(tmp_path)
    ends = [("exit", 90, None), ("error", 91, "ValueError: x"), (None, None, None)]
    assert [(one.ended, one.end, one.error) for one in session.processes] == ends
    assert session.processes[2].stacks == ["hung: File x"]
    assert [(note.code, note.text, note.pid, note.time) for note in session.notes] == [("killed", "gone", 3, 51)]


def test_facts_stay_apart_by_kind_and_newer_ones_win(tmp_path):
    write_settings(tmp_path)
    records = [["torch", 1, {"version": "2.9"}], ["facts", 2, {"a": 1, "b": 1}], ["facts", 3, {"a": 2}]]
    write_evidence(tmp_path, "a", [process(1), *records])
    (one,) = read(tmp_path).processes
    assert one.facts["process"]["version"] == 1
    assert one.facts["torch"] == {"version": "2.9"}
    assert one.facts["facts"] == {"a": 2, "b": 1}


def test_a_file_without_its_first_line_is_noted(tmp_path):
    write_settings(tmp_path)
    write_evidence(tmp_path, "headless", [STEP])
    session = read(tmp_path)
    assert session.processes == []
    assert [(note.code, note.text.partition(":")[0]) for note in session.notes] == [("empty", "headless.jsonl")]


def test_ranks_come_from_the_process_group_before_the_environment(tmp_path):
    write_settings(tmp_path)
    write_run(tmp_path, MadeRun(pid=200, rank=1, steps=2))
    records = simulate(MadeRun(pid=300, rank=None, steps=2))["host-300-0"]
    write_evidence(tmp_path, "c", [*records, ["facts", 9, {"rank": 0}]])
    assert [(one.rank, one.pid) for one in read(tmp_path).trainers] == [(0, 300), (1, 200)]


def test_a_full_file_and_a_damaged_one_are_called_cut(tmp_path):
    path = write_run(tmp_path, MadeRun(steps=20)) or tmp_path / "evidence" / "host-100-0.jsonl"
    size = path.stat().st_size
    write_settings(tmp_path, most_bytes=size)
    assert [one.cut for one in read(tmp_path).processes] == [True, False, False]
    write_settings(tmp_path, most_bytes=size * 2)
    assert [one.cut for one in read(tmp_path).processes] == [False, False, False]
    path.write_bytes(path.read_bytes()[:-3])
    assert [one.cut for one in read(tmp_path).processes] == [True, False, False]


def test_a_worker_that_filled_its_file_after_the_last_step_is_whole(tmp_path):
    """As under --observe, where workers go on recording after the training thread's hooks have stopped."""
    write_run(tmp_path, MadeRun(steps=20))
    path = tmp_path / "evidence" / "host-101-0.jsonl"
    later = [["batch", 0, index, 10**9 + index, 10**9 + index + 1, None, 0, 4, []] for index in range(1000, 2000)]
    path.write_text(path.read_text() + "".join(json.dumps(record) + "\n" for record in later))
    write_settings(tmp_path, most_bytes=path.stat().st_size)
    assert [one.cut for one in read(tmp_path).processes] == [False, False, False]
    path.write_bytes(path.read_bytes()[:-3])
    assert [one.cut for one in read(tmp_path).processes] == [False, True, False]


ERROR = [["error", 80, "ZeroDivisionError: by zero"], ["end", 90, "error"]]


@pytest.mark.parametrize(
    ("window", "end", "why", "failed"),
    [
        ("replay", ERROR, "failed", "ZeroDivisionError: by zero"),
        ("replay", [["end", 90, "exit"]], "failed", "exit status 3"),
        ("replay", [], "failed", "exit status 3"),
        ("observe", ERROR, "failed", None),
        ("replay", [["end", 90, "exit"]], "finished", None),
    ],
    ids=["error", "exit", "signal", "while observed", "finished"],
)
def test_a_process_that_fails_in_replay_is_found(tmp_path, window, end, why, failed):
    write_settings(tmp_path)
    windows = [["facts", 70 + turn, {"window": name}] for turn, name in enumerate(["observe", window])]
    write_evidence(tmp_path, "a", [process(1), STEP, *windows, *end])
    session = read(tmp_path, mode="measure", outcome=outcome(status=3, why=why))
    assert session.outcome.why == why
    assert [note.code for note in session.notes] == (["replay-failed"] if failed else [])
    found = FailedReplay.of(session.outcome, session.processes)
    assert (found and found.why) == failed


@pytest.mark.parametrize(("window", "why"), [("replay", "steps"), (None, "failed")])
def test_an_error_in_replay_ends_the_run_as_the_doctor_would(tmp_path, window, why):
    write_settings(tmp_path)
    windows = [["window", name, 5, 40, 3, 10, 50] for name in ["observe", window] if name]
    windows += [["facts", 60, {"window": window}]] if window else []
    error = ["error", 80, "Traceback:\n  File x\nZeroDivisionError: by zero"]
    write_evidence(tmp_path, "a", [process(1), STEP, *windows, error, ["end", 90, "error"]])
    session = read(tmp_path, mode="measure", outcome=outcome(status=1, why="failed"))
    assert session.outcome.why == why
    told = [note.text for note in session.notes if note.code == "replay-failed"]
    assert ["ZeroDivisionError: by zero" in text for text in told] == ([True] if why == "steps" else [])
