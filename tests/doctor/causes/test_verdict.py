"""Codes and figures of what a report says first, and of what it says of processes."""

from __future__ import annotations

import pytest
from machine_findings import quantities
from made_sessions import (
    MadeRun,
    machine,
    made_session,
    outcome,
    process,
    read,
    replace,
    write_evidence,
    write_settings,
)
from report_pages import codes, figures, printed, said

from headrace.doctor.causes import diagnose, diagnosis, prescribe, storage
from headrace.doctor.causes.cause import APART, MACHINE, Cause, all_causes
from headrace.doctor.causes.stages import named
from headrace.doctor.measure.diagnosis import Finding
from headrace.doctor.session.model import ProbedProcess, SessionNote, Standstill
from headrace.doctor.session.trainers import ReceivedBatches, SourceLine

LOOKUP = {"lookup:tarfile": 12_000, "decode:PIL": 3_000, "collate:default": 200}


@pytest.mark.parametrize(
    ("run", "waiter", "cause", "said_figures"),
    [
        (MadeRun(stages=LOOKUP, gpu=True, workers=2), "gpu", "lookup:tarfile", ["7.5 ms", "54 %", "79 %", "2", "20 %"]),
        (MadeRun(stages=LOOKUP, workers=1), "cpu", "lookup:tarfile", ["15.2 ms", "77 %", "79 %", "1", "20 %"]),
        (MadeRun(stages={"decode:PIL": 7_000}, workers=0), "cpu", "decode:PIL", ["10.5 ms", "67 %", "100 %"]),
    ],
    ids=["a gpu", "no gpu", "no workers"],
)
def test_a_run_that_waits_says_who_for_what_and_where(tmp_path, run, waiter, cause, said_figures):
    diagnosis = diagnose(made_session(tmp_path, run))
    assert codes(diagnosis) == ["input-bound", "causes"]
    assert figures(diagnosis) == said_figures
    assert named(cause) in diagnosis.verdict.text
    assert diagnosis.seen_by == waiter
    assert diagnosis.wait_share == pytest.approx(float(said_figures[1][:-2]) / 100, abs=0.005)


def test_several_stages_of_one_kind_are_summed(tmp_path):
    stages = {"transform:Crop": 5_000, "transform:Flip": 4_000, "decode:PIL": 3_000}
    (causes,) = diagnose(made_session(tmp_path, MadeRun(stages=stages))).statements
    assert quantities(causes.text) == ["75 %", "2", "25 %"]


def test_a_healthy_run_is_called_that(tmp_path):
    diagnosis = diagnose(made_session(tmp_path, MadeRun(stages={"decode:a": 2_000}, unpickle=30)))
    assert (codes(diagnosis), figures(diagnosis)) == (["not-input-bound"], ["3.5 ms", "0.8 %"])


@pytest.mark.parametrize(("steps", "asked", "is_few"), [(21, 200, True), (30, 20, False)])
def test_a_run_that_ended_before_its_steps_were_measured_says_so(tmp_path, steps, asked, is_few):
    session = made_session(tmp_path, MadeRun(steps=steps), mode="measure", settings={"steps": asked, "warmup": 4})
    diagnosis = diagnose(session)
    assert ("few-steps" in codes(diagnosis)) == is_few
    assert not is_few or figures(diagnosis)[-2:] == ["17", "200"]


@pytest.mark.parametrize(
    ("changes", "ending", "words"),
    [
        ({"status": 1, "why": "failed", "last_lines": ["Traceback …", "ValueError: odd", ""]}, "failed", "ValueError"),
        ({"status": 137, "why": "failed", "last_lines": []}, "failed", "137 (SIGKILL)"),
        ({"status": 130, "why": "interrupted"}, "interrupted", "40 steps"),
        ({"status": 143, "why": "steps"}, None, ""),
    ],
)
def test_how_the_command_ended_comes_first(tmp_path, changes, ending, words):
    diagnosis = diagnose(made_session(tmp_path, outcome=outcome(**changes)))
    assert [one.code for one in diagnosis.ending] == ([] if ending is None else [ending])
    assert words in said(diagnosis).partition(diagnosis.verdict.text)[0]


def test_the_exception_that_ended_it_is_its_last_line(tmp_path):
    write_settings(tmp_path)
    traceback = "Traceback (most recent call last):\n  File x\nKeyError: 'label'"
    write_evidence(tmp_path, "a", [process(7), ["torch", 1, {}], ["error", 5, traceback], ["end", 6, "exit"]])
    diagnosis = diagnose(read(tmp_path, outcome=outcome(status=1, why="failed", last_lines=["epoch 1"])))
    assert codes(diagnosis) == ["failed", "no-training"]
    assert "KeyError: 'label'" in diagnosis.ending[0].text
    assert diagnosis.wait_share is None


def test_an_exception_is_named_by_its_own_line_and_a_trainers_before_its_launchers(tmp_path):
    session = made_session(tmp_path, outcome=outcome(status=1, why="failed"))
    launcher = ProbedProcess(1, 0, "host", "other", 0, None, "error", error="ChildFailedError: rank 0")
    session.processes.insert(0, launcher)
    session.processes[1].error = "Traceback:\n  File x\ntorch.cuda.OutOfMemoryError: no memory\n  of 3 GB left\nat all"
    assert diagnose(session).ending[0].text.partition(": ")[2] == "torch.cuda.OutOfMemoryError: no memory."


def test_a_command_that_is_not_there(tmp_path):
    write_settings(tmp_path)
    gone = outcome(command=["pyhton", "x.py"], status=127, why="not found")
    diagnosis = diagnose(read(tmp_path, outcome=gone))
    assert codes(diagnosis) == ["not-found", "not-run"]
    assert "pyhton" in diagnosis.ending[0].text


@pytest.mark.parametrize(
    ("records", "code"),
    [([["end", 6, "exit"]], "no-training"), ([["loader", 0, 0, {}], ["pass", 0, 0, 0, 0, 0, [7]]], "no-steps")],
    ids=["no torch", "no batch"],
)
def test_a_command_that_trains_nothing(tmp_path, records, code):
    write_settings(tmp_path)
    write_evidence(tmp_path, "a", [process(7), *records])
    assert codes(diagnose(read(tmp_path))) == [code]


def test_training_without_a_loader_is_told(tmp_path):
    write_settings(tmp_path, warmup=0)
    steps = [["step", number, number * 100, number * 100 + 100, [["b", 20, 70]], 0] for number in range(8)]
    write_evidence(tmp_path, "a", [process(7), ["torch", 1, {}], *steps])
    diagnosis = diagnose(read(tmp_path))
    assert codes(diagnosis) == ["no-batches", "unseen-wait", "largest-part"]
    assert figures(diagnosis) == ["100 µs", "8", "70 %"]
    assert "backward" in diagnosis.statements[1].text
    assert diagnosis.wait_share is None


def test_batches_that_only_another_thread_received_are_not_called_no_loader(tmp_path):
    write_settings(tmp_path, warmup=0)
    steps = [["step", number, number * 100, number * 100 + 100, [["b", 20, 70]], 0] for number in range(8)]
    write_evidence(tmp_path, "a", [process(7), ["pass", 0, 0, 0, 0, 0, [7]], *steps])
    verdict = diagnose(read(tmp_path)).verdict
    assert (verdict.code, quantities(verdict.text)) == ("no-batches", ["100 µs", "8"])
    assert "training thread" in verdict.text


def test_without_an_optimizer_it_is_each_batch(tmp_path):
    write_settings(tmp_path, warmup=0)
    gets = [["get", 0, index, index * 100, 30] for index in range(8)]
    loader = [["loader", 0, 0, {"num_workers": 1}], ["pass", 0, 0, 0, 0, 0, [8]]]
    write_evidence(tmp_path, "a", [process(7), *loader, *gets])
    diagnosis = diagnose(read(tmp_path))
    assert (diagnosis.budgets[0].unit, figures(diagnosis)[:2]) == ("batch", ["91 µs", "33 %"])


def hung(batch: str) -> str:
    stack = '  File "/work/data.py", line 9, in load\n  File "/usr/lib/python3.12/zipfile.py", line 3, in read\n'
    return f"hung: {batch} has been in the making for 12 s:\n{stack}"


@pytest.mark.parametrize(("batch", "hangs"), [("batch 999 of epoch 0", True), ("batch 3 of epoch 0", False)])
def test_a_worker_that_went_on_after_all_does_not_hang(tmp_path, batch, hangs):
    session = made_session(tmp_path, MadeRun())
    session.processes[2].stacks = [hung(batch)]
    diagnosis = diagnose(session)
    assert ("stalled-sample" in {finding.code for finding in diagnosis.findings}) == hangs
    assert ("stalled-sample" in codes(diagnosis)) == hangs


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(("why", "ending"), [("stalled", []), ("interrupted", ["interrupted"]), ("finished", [])])
def test_a_hung_worker_is_named_however_the_run_ends(tmp_path, why, ending, ranks):
    session = made_session(tmp_path, *(MadeRun(rank=rank, pid=100 * (rank + 1)) for rank in range(ranks)))
    (worker,) = (one for one in session.processes if one.pid == 102)
    worker.stacks.append(hung("batch 999 of epoch 0"))
    session.outcome = replace(session.outcome, why=why)
    (within,) = (one for one in diagnose(session).findings if one.code.startswith("stalled"))
    assert within.code == "stalled-sample"
    assert quantities(within.text) == ["1", "102", "9"]
    assert quantities(within.evidence) == ["1", "102", "9", "999", "0", "12 s"]
    assert codes(diagnose(session))[: 2 + len(ending)] == ["stalled-sample"] * 2 + ending
    if why != "finished":
        trainers = [session.process_of(one) for one in session.trainers]
        for trainer in trainers:
            trainer.stacks.append('stands: 30 batches, 29 steps\n  File "/work/train.py", line 7, in main\n')
        session.outcome = replace(session.outcome, standstill=Standstill({102: "sleeping", 101: "sleeping"}))
        (standing,) = (one for one in diagnose(session).findings if one.code.startswith("stalled"))
        assert standing.code == within.code
        assert standing.text.partition(": ")[2] == within.text.partition(": ")[2]
        assert quantities(standing.evidence).count("30") == ranks


def spread(tmp_path, run):
    """A run whose model nn.DataParallel spreads over devices."""
    session = made_session(tmp_path, run)
    session.notes = [SessionNote("data-parallel", "nn.DataParallel spreads each batch over 2 devices.", 100)]
    return session, diagnose(session)


def test_data_parallel_weighs_as_much_as_the_part_of_a_step_that_it_copies_in(tmp_path):
    session, diagnosis = spread(tmp_path, MadeRun(stages={"decode:PIL": 100, "collate:a": 10}, forward=4_500))
    found = diagnosis.findings[0]
    assert (found.code, found.weight) == ("data-parallel", pytest.approx(4_500 / 7_000, rel=0.01))
    assert quantities(found.evidence) == ["64 %"]
    assert found.text in " ".join(printed(session, diagnosis, width=200).split())


def test_data_parallel_comes_behind_the_cause_of_a_wait(tmp_path):
    _, diagnosis = spread(tmp_path, MadeRun(forward=4_500, workers=1))
    (cause, copies) = diagnosis.findings[:2]
    assert (cause.code, copies.code) == ("stage-decode", "data-parallel")
    assert copies.weight > cause.weight


@pytest.mark.parametrize(
    ("error", "whose"),
    [
        ("RuntimeError: DataLoader worker (pid(s) 102) exited unexpectedly", ["1", "102"]),
        ("RuntimeError: DataLoader worker (pid 102) is killed by signal: Killed. ", ["1", "102"]),
        ("ConnectionResetError: reset by peer", ["0", "101", "1", "102"]),
        ("KeyError: 3", None),  # the trainer failed first, and ended its workers
        ("EOFError: Caught EOFError in DataLoader worker process 0.\nTraceback\nEOFError: no such image", None),
    ],
)
def test_a_worker_that_died_is_named_as_torch_does_or_as_its_evidence_stops(tmp_path, error, whose):
    session = made_session(tmp_path)
    trainer, *workers = session.processes
    trainer.error, trainer.ended = f"Traceback\n{error}", "error"
    for worker in workers:
        worker.ended = None
    session.outcome = replace(session.outcome, status=1, why="failed")
    diagnosis = diagnose(session)
    found = [one for one in diagnosis.findings if one.code == "killed"]
    if whose is None:
        assert found == []
    else:
        assert found == diagnosis.findings[:1]
        assert (quantities(found[0].text), found[0].evidence) == (whose, error.strip())
        assert codes(diagnosis)[:3] == ["killed", "killed", "failed"]
        assert prescribe(session, diagnosis).stop == found[0].advice


def test_the_trainer_that_waits_longest_is_the_one_that_is_told_of(tmp_path):
    session = made_session(tmp_path, MadeRun(stages={"decode:a": 100}), MadeRun(pid=300, stages=LOOKUP))
    assert named("lookup:tarfile") in diagnose(session).verdict.text


BUSY = Finding("cpu-stolen", 0.95, "Others use it.", "busy", "Look at top.")
KILLED = Finding("oom-kill", 1.0, "The kernel killed it.", "limit", "Raise the limit.")


def find_on_machines(monkeypatch: pytest.MonkeyPatch, *found: Finding) -> None:
    """Find these, and nothing else, on the machines."""
    others = [one for one in all_causes() if one.order != MACHINE]
    killed, rest = ([one for one in found if (one is KILLED) == is_killed] for is_killed in (True, False))
    known = [code for one in all_causes() if one.order == MACHINE for code in one.explains]
    made = [Cause(find=lambda run: killed, order=APART), Cause(find=lambda run: rest, order=MACHINE, explains=known)]
    monkeypatch.setattr(diagnosis, "all_causes", lambda: [*others, *made])


@pytest.fixture
def of_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    find_on_machines(monkeypatch, KILLED, BUSY)


@pytest.mark.usefixtures("of_machines")
def test_what_a_machine_is_short_of_comes_after_the_cause_of_the_wait(tmp_path):
    found = [one.code for one in diagnose(made_session(tmp_path, MadeRun(stages=LOOKUP))).findings]
    assert found[:2] == ["oom-kill", "stage-lookup"]
    assert found.index("cpu-stolen") < found.index("stage-decode")


def test_unequal_batches_are_said_only_where_nothing_else_makes_them_so(tmp_path, monkeypatch):
    run = MadeRun(stages={"decode:PIL": 4_000}, slow_batches=dict.fromkeys(range(9, 40, 10), 90_000), workers=4)
    session = made_session(tmp_path, run)
    assert codes(diagnose(session))[-1] == "out-of-order"
    threads = Finding("threads", 0.1, "17 threads.", "", "")
    find_on_machines(monkeypatch, threads)
    assert codes(diagnose(session))[-1] == "threads"


def test_memory_that_workers_copy_is_said_whatever_it_weighs(tmp_path, monkeypatch):
    copied = Finding("copy-on-write", 0.0, "Workers copied 700 MB.", "", "")
    find_on_machines(monkeypatch, copied)
    found = diagnose(made_session(tmp_path, MadeRun(stages={"decode:PIL": 100})))
    assert codes(found) == ["not-input-bound", "copy-on-write"]


def test_what_is_read_from_disk_weighs_what_is_waited_for_reading(tmp_path, monkeypatch):
    """Too few workers weigh the whole wait, and come after it, since more workers only hide it."""
    from_disk = Finding("reads-from-disk", 0.1, "All of it comes from disk.", "", "")
    monkeypatch.setattr(storage, "of_machines", lambda find: lambda run: [from_disk] if "disk" in find.__name__ else [])
    stages = {"read:file": 9_000, "decode:PIL": 3_000}
    told = diagnose(made_session(tmp_path, MadeRun(stages=stages), machines=[machine(cores=16)]))
    assert [one.code for one in told.findings[:3]] == ["stage-read", "reads-from-disk", "few-workers"]
    (found,) = [one for one in told.findings if one.code == "reads-from-disk"]
    assert found.weight == pytest.approx(0.75 * told.wait_share, rel=0.01)
    assert codes(told)[-1] == "reads-from-disk"


@pytest.mark.usefixtures("of_machines")
def test_it_comes_first_where_nothing_waits_for_data(tmp_path):
    assert diagnose(made_session(tmp_path, MadeRun(stages={"decode:PIL": 100}))).findings[0].code == "oom-kill"


@pytest.mark.usefixtures("of_machines")
def test_without_training_a_machine_explains_only_an_end(tmp_path):
    write_settings(tmp_path)
    assert [one.code for one in diagnose(read(tmp_path)).findings] == ["oom-kill"]


def test_how_a_loader_is_set_up_comes_after_the_cause_of_the_wait(tmp_path):
    """Too few workers for what they make weighs the whole wait, and the cause a part of it."""
    run = MadeRun(stages=LOOKUP, workers=8, forward=100, backward=100)
    found = diagnose(made_session(tmp_path, run, machines=[machine(cores=2.0, affinity=2)])).findings
    heavier = [one.code for one in found if one.weight > found[0].weight]
    assert found[0].code == "stage-lookup"
    assert heavier


def test_data_work_in_the_loop_counts_as_data_and_its_lines_are_named(tmp_path):
    session = made_session(tmp_path, MadeRun(stages={"decode:a": 100}, forward=6_000))
    trainer = session.trainers[0]
    for row, (start, spans) in enumerate(zip(trainer.steps.start, trainer.steps.spans, strict=True)):
        trainer.steps.spans[row] = [("d", start + 500, 5_000), *spans]
    places = {"/home/ada/train.py:31:normalise": 70_000, "/home/ada/train.py:9:<module>": 30_000}
    trainer.lines = [SourceLine(*each) for each in places.items()]
    diagnosis = diagnose(session)
    assert diagnosis.wait_share == pytest.approx(0.02, abs=0.02)
    assert diagnosis.data_share == pytest.approx(0.6, abs=0.05)
    assert codes(diagnosis) == ["data-work", "data-work"]
    assert diagnosis.statements[0].text.endswith(" train.py:31 (normalise).")
    (finding,) = [one for one in diagnosis.findings if one.code == "data-work"]
    assert [one for one in quantities(finding.evidence) if "%" in one] == ["70 %", "30 %"]


def test_time_before_the_model_is_named_by_its_line_where_nothing_was_seen_to_give_batches(tmp_path):
    session = made_session(tmp_path, MadeRun(forward=6_000))
    trainer = session.trainers[0]
    trainer.gets, trainer.passes = ReceivedBatches(), []
    for row, (start, spans) in enumerate(zip(trainer.steps.start, trainer.steps.spans, strict=True)):
        trainer.steps.spans[row] = [("n", start, 5_000), *spans]
    trainer.lines = [SourceLine("/home/ada/train.py:31:get_batch", 70_000)]
    where = diagnose(session).statements[-1]
    assert where.code == "before-model"
    assert where.text.endswith(" train.py:31 (get_batch).")
