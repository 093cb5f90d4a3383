"""What a report says first, word for word, and what it says of processes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from made_sessions import MadeRun, machine, made_session, outcome, process, read, write_evidence, write_settings
from report_pages import printed, said

from headrace.doctor.causes import findings
from headrace.doctor.causes.findings import diagnose
from headrace.doctor.causes.processes import NOTES, PLAIN
from headrace.doctor.causes.stage_names import named
from headrace.doctor.measure.diagnosis import Finding
from headrace.doctor.session.model import ProbedProcess, SessionNote, UnreachedProcess
from headrace.doctor.session.producers import SourceLine
from headrace.doctor.session.trainers import ReceivedBatches

LOOKUP = {"lookup:tarfile": 12_000, "decode:PIL": 3_000, "collate:default": 200}


def test_a_run_that_waits_says_who_for_what_and_where(tmp_path):
    diagnosis = diagnose(made_session(tmp_path, MadeRun(stages=LOOKUP, gpu=True, workers=2)))
    assert said(diagnosis) == (
        "A step takes 7.5 ms; the GPU waits 54 % of it for data, mostly archive lookup (tarfile). "
        "79 % of the wait is archive lookup (tarfile) in 2 workers, 20 % decode (PIL)."
    )
    assert diagnosis.seen_by == "gpu"
    assert diagnosis.wait_share == pytest.approx(0.54, abs=0.005)


def test_without_a_gpu_the_training_loop_waits(tmp_path):
    diagnosis = diagnose(made_session(tmp_path, MadeRun(stages=LOOKUP, workers=1)))
    assert (
        diagnosis.verdict.text == "A step takes 15.2 ms and waits 77 % of it for data, mostly archive lookup (tarfile)."
    )
    assert "in 1 worker," in said(diagnosis)
    assert diagnosis.seen_by == "cpu"


def test_without_workers_that_is_where_it_is_made(tmp_path):
    verdict = said(diagnose(made_session(tmp_path, MadeRun(workers=0, stages={"decode:PIL": 7_000}))))
    assert verdict == (
        "A step takes 10.5 ms and waits 67 % of it for data, mostly decode (PIL). "
        "100 % of the wait is decode (PIL) in the training process, which has no workers."
    )


def test_several_stages_of_one_kind_are_summed(tmp_path):
    stages = {"transform:Crop": 5_000, "transform:Flip": 4_000, "decode:PIL": 3_000}
    verdict = said(diagnose(made_session(tmp_path, MadeRun(stages=stages))))
    assert "75 % of the wait is transforms in 2 workers, 25 % decode (PIL)." in verdict


def test_what_is_no_stage_has_its_place_in_its_name(tmp_path):
    verdict = said(diagnose(made_session(tmp_path, MadeRun(workers=1, stages={"decode:a": 100}, unpickle=9_000))))
    assert verdict.endswith("100 % of the wait is receiving and unpickling.")


def test_a_healthy_run_is_called_that(tmp_path):
    diagnosis = diagnose(made_session(tmp_path, MadeRun(stages={"decode:a": 2_000}, unpickle=30)))
    assert said(diagnosis) == "Not input-bound: a step takes 3.5 ms and waits 0.8 % of it for data."


def test_a_short_run_says_so(tmp_path):
    session = made_session(tmp_path, MadeRun(steps=21), mode="measure", settings={"steps": 200, "warmup": 4})
    assert said(diagnose(session)).endswith("Measured over 17 steps of the 200 asked for: the run ended first.")


def test_a_measured_run_that_gave_its_steps_does_not(tmp_path):
    session = made_session(tmp_path, MadeRun(steps=30), mode="measure", settings={"steps": 20, "warmup": 4})
    assert "asked for" not in said(diagnose(session))


@pytest.mark.parametrize(
    ("changes", "begins"),
    [
        (
            {"status": 1, "why": "failed", "last_lines": ["Traceback …", "ValueError: odd", ""]},
            "The command failed with exit status 1 after 40 steps: ValueError: odd. A step takes",
        ),
        (
            {"status": 137, "why": "failed", "last_lines": []},
            "The command failed with exit status 137 (SIGKILL) after 40 steps. A step takes",
        ),
        ({"status": 130, "why": "interrupted"}, "The run was interrupted after 40 steps. A step takes"),
        ({"status": 143, "why": "steps"}, "A step takes"),
        ({"status": None, "why": "running"}, "A step takes"),
    ],
)
def test_how_the_command_ended_comes_first(tmp_path, changes, begins):
    assert said(diagnose(made_session(tmp_path, outcome=outcome(**changes)))).startswith(begins)


def test_the_exception_that_ended_it_is_its_last_line(tmp_path):
    write_settings(tmp_path)
    traceback = "Traceback (most recent call last):\n  File x\nKeyError: 'label'"
    write_evidence(tmp_path, "a", [process(7), ["torch", 1, {}], ["error", 5, traceback], ["end", 6, "exit"]])
    diagnosis = diagnose(read(tmp_path, outcome=outcome(status=1, why="failed", last_lines=["epoch 1"])))
    assert said(diagnosis) == (
        "The command failed with exit status 1: KeyError: 'label'. No training was seen: torch was imported, but no "
        "DataLoader was iterated and no optimizer stepped."
    )
    assert diagnosis.wait_share is None


def test_an_exception_is_named_by_its_own_line_and_a_trainers_before_its_launchers(tmp_path):
    session = made_session(tmp_path, outcome=outcome(status=1, why="failed"))
    session.processes.insert(
        0, ProbedProcess(1, 0, "host", "other", 0, None, "error", error="ChildFailedError: rank 0")
    )
    session.processes[1].error = "Traceback:\n  File x\ntorch.cuda.OutOfMemoryError: no memory\n  of 3 GB left\nat all"
    assert "after 40 steps: torch.cuda.OutOfMemoryError: no memory. A step" in said(diagnose(session))


def test_a_command_that_is_not_there(tmp_path):
    write_settings(tmp_path)
    gone = outcome(command=["pyhton", "x.py"], status=127, why="not found")
    assert said(diagnose(read(tmp_path, outcome=gone))) == (
        "The command could not be started: pyhton was not found. Nothing was run."
    )


def test_a_command_without_torch(tmp_path):
    write_settings(tmp_path)
    write_evidence(tmp_path, "a", [process(7), ["end", 6, "exit"]])
    assert said(diagnose(read(tmp_path))) == (
        "No training was seen: no Python process that could be observed imported torch."
    )


def test_processes_out_of_reach_are_counted_and_found(tmp_path):
    write_settings(tmp_path)
    unreached = [UnreachedProcess(9, "python -I train.py", "-I keeps PYTHONPATH from it")]
    diagnosis = diagnose(read(tmp_path, unreached=unreached))
    assert said(diagnosis) == (
        "No training was seen: no Python process that could be observed imported torch; 1 process could not be "
        "observed."
    )
    (found,) = [one for one in diagnosis.findings if one.code == "unreached"]
    assert found.text == "Process 9 could not be observed: -I keeps PYTHONPATH from it"
    assert found.evidence == "python -I train.py"


def test_training_without_a_loader_is_told(tmp_path):
    write_settings(tmp_path, warmup=0)
    steps = [["step", number, number * 100, number * 100 + 100, [["b", 20, 70]], 0] for number in range(8)]
    write_evidence(tmp_path, "a", [process(7), ["torch", 1, {}], *steps])
    diagnosis = diagnose(read(tmp_path))
    assert said(diagnosis) == (
        "A step takes 100 µs; no DataLoader was iterated and no other source of batches was found in 8 steps. A wait "
        "for batches, if there was any, is in what is called not seen, or in other. The largest part of a step is "
        "backward (70 %)."
    )
    assert diagnosis.wait_share is None


def test_batches_that_only_another_thread_received_are_not_called_no_loader(tmp_path):
    write_settings(tmp_path, warmup=0)
    steps = [["step", number, number * 100, number * 100 + 100, [["b", 20, 70]], 0] for number in range(8)]
    write_evidence(tmp_path, "a", [process(7), ["pass", 0, 0, 0, 0, 0, [7]], *steps])
    assert said(diagnose(read(tmp_path))).startswith(
        "A step takes 100 µs; a DataLoader was iterated, but the training thread received none of its batches in 8"
    )


def test_a_trainer_that_came_to_nothing_says_so(tmp_path):
    write_settings(tmp_path)
    write_evidence(tmp_path, "a", [process(7), ["loader", 0, 0, {}], ["pass", 0, 0, 0, 0, 0, [7]]])
    assert said(diagnose(read(tmp_path))) == (
        "No step was completed and no batch was received, so there is nothing to say about its data."
    )


def test_without_an_optimizer_it_is_each_batch(tmp_path):
    write_settings(tmp_path, warmup=0)
    gets = [["get", 0, index, index * 100, 30] for index in range(8)]
    loader = [["loader", 0, 0, {"num_workers": 1}], ["pass", 0, 0, 0, 0, 0, [8]]]
    write_evidence(tmp_path, "a", [process(7), *loader, *gets])
    assert diagnose(read(tmp_path)).verdict.text == "A batch takes 91 µs and waits 33 % of it for data."


@pytest.mark.parametrize(("batch", "hangs"), [("batch 999 of epoch 0", True), ("batch 3 of epoch 0", False)])
def test_a_worker_that_went_on_after_all_does_not_hang(tmp_path, batch, hangs):
    session = made_session(tmp_path, MadeRun())
    session.processes[2].stacks = [f"hung: {batch} has been in the making for 12 s:\n  File data.py line 9 in load"]
    diagnosis = diagnose(session)
    assert ("hung" in {finding.code for finding in diagnosis.findings}) == hangs
    assert ("hangs" in said(diagnosis)) == hangs


def test_a_hung_worker_is_named_with_its_stack(tmp_path):
    session = made_session(tmp_path)
    stack = "hung: Thread 0x1\n  File io.py line 3 in read\n  File data.py line 9 in load"
    next(one for one in session.processes if one.pid == 102).stacks.append(stack)
    diagnosis = diagnose(session)
    assert said(diagnosis).startswith("Worker 1 (process 102) hangs. A step takes")
    found = diagnosis.findings[0]
    assert (found.code, found.text) == (
        "hung",
        "Worker 1 (process 102) hangs: it has spent far longer on one batch than on any before.",
    )
    assert found.evidence == "hung: Thread 0x1 | File io.py line 3 in read | File data.py line 9 in load"


def test_notes_are_findings_once_however_many_processes_say_them(tmp_path):
    session = made_session(tmp_path)
    session.notes = [SessionNote("hook-off", "Image.load: TypeError", pid) for pid in (101, 102, 102)]
    session.notes += [SessionNote("new-code", "odd")]
    findings = {one.code: one for one in diagnose(session).findings}
    assert findings["hook-off"].text == "A hook of the doctor failed and was removed: Image.load: TypeError"
    assert findings["hook-off"].evidence == "process 101 and 1 other"
    assert findings["new-code"].text == "The probe notes 'new-code': odd"


def test_every_code_of_a_note_has_words_of_its_own():
    """As docs/doctor/session.md lists them; a newer probe's has none, and no advice."""
    document = Path(__file__).parents[3] / "docs" / "doctor" / "session.md"
    codes = set(re.findall(r"`([a-z-]+)`", document.read_text().partition("## Note codes")[2]))
    assert {"no-replay", "leftover", "thread-died"} <= codes
    assert codes <= {*NOTES, *PLAIN}


def test_a_note_of_a_newer_probe_puts_no_empty_advice_before_a_reader(tmp_path):
    session = made_session(tmp_path, MadeRun(stages={"decode:PIL": 100}))
    session.notes = [SessionNote("new-code", "odd")]
    diagnosis = diagnose(session)
    assert [one.advice for one in diagnosis.findings if one.code == "new-code"] == [""]
    page = printed(session, diagnosis, verbose=True)
    assert "The probe notes 'new-code': odd" in page
    assert "note's text" not in page
    assert not [line for line in page.splitlines() if line.strip() == "→"]


def spread(tmp_path, run):
    """A run whose model nn.DataParallel spreads over devices."""
    session = made_session(tmp_path, run)
    session.notes = [SessionNote("data-parallel", "nn.DataParallel spreads each batch over 2 devices.", 100)]
    return session, diagnose(session)


def test_data_parallel_weighs_as_much_as_the_part_of_a_step_that_it_copies_in(tmp_path):
    session, diagnosis = spread(tmp_path, MadeRun(stages={"decode:PIL": 100, "collate:a": 10}, forward=4_500))
    found = diagnosis.findings[0]
    assert (found.code, found.weight) == ("data-parallel", pytest.approx(4_500 / 7_000, rel=0.01))
    assert found.evidence == "process 100; copies are made within forward, 64 % of each step"
    assert found.text in " ".join(printed(session, diagnosis, width=200).split()), "and not with --verbose only"


def test_data_parallel_comes_behind_the_cause_of_a_wait(tmp_path):
    _, diagnosis = spread(tmp_path, MadeRun(forward=4_500, workers=1))
    (cause, copies) = diagnosis.findings[:2]
    assert (cause.code, copies.code) == ("stage-decode", "data-parallel")
    assert copies.weight > cause.weight, "a share of a step, whatever its place"


def test_data_parallel_weighs_nothing_where_no_step_was_seen(tmp_path):
    _, diagnosis = spread(tmp_path, MadeRun(steps=0))
    assert [one.weight for one in diagnosis.findings if one.code == "data-parallel"] == [0]


@pytest.mark.parametrize(
    ("error", "whose"),
    [
        ("RuntimeError: DataLoader worker (pid(s) 102) exited unexpectedly", "Worker 1 (process 102)"),
        ("RuntimeError: DataLoader worker (pid 102) is killed by signal: Killed. ", "Worker 1 (process 102)"),
        ("ConnectionResetError: reset by peer", "Worker 0 (process 101) or Worker 1 (process 102)"),
    ],
)
def test_a_worker_that_died_is_named_as_torch_does_or_as_its_evidence_stops(tmp_path, error, whose):
    session = made_session(tmp_path)
    trainer, *workers = session.processes
    trainer.error, trainer.ended = f"Traceback\n{error}", "error"
    for worker in workers:
        worker.ended = None
    found = diagnose(session).findings[0]
    assert (found.code, found.evidence) == ("killed", error.strip())
    assert found.text == f"{whose} died: something killed it, or it crashed in native code."


def test_a_worker_on_another_host_is_no_child_of_the_same_pid(tmp_path):
    session = made_session(tmp_path, MadeRun(rank=0), MadeRun(rank=1, host="other"))
    for one in session.processes:
        one.ended = None if one.role == "worker" and one.host == "other" else "exit"
    next(one for one in session.processes if one.role == "trainer" and one.host != "other").error = "EOFError"
    assert "killed" not in [finding.code for finding in diagnose(session).findings]


@pytest.mark.parametrize(
    "error",
    [
        "KeyError: 3",
        "ValueError: in the loss",
        "EOFError: Caught EOFError in DataLoader worker process 0.\nTraceback\nEOFError: no such image",
    ],
)
def test_workers_that_a_failing_trainer_ended_did_not_die(tmp_path, error):
    session = made_session(tmp_path)
    trainer, *workers = session.processes
    trainer.error, trainer.ended = f"Traceback\n{error}", "error"
    for worker in workers:
        worker.ended = None
    assert "killed" not in [finding.code for finding in diagnose(session).findings]


def test_workers_that_ended_in_order_did_not_make_the_run_fail(tmp_path):
    session = made_session(tmp_path)
    session.processes[0].error = "KeyError: 3"
    for worker in session.processes[1:]:
        worker.ended = "exit"
    assert "killed" not in [finding.code for finding in diagnose(session).findings]


def test_evidence_that_was_cut_is_told(tmp_path):
    session = made_session(tmp_path)
    session.processes[1].cut = True
    (found,) = [one for one in diagnose(session).findings if one.code == "cut"]
    assert found.text == "The evidence of 1 process is a sample, or ends in the middle."
    assert found.evidence == "101"


def test_the_trainer_that_waits_longest_is_the_one_that_is_told_of(tmp_path):
    session = made_session(tmp_path, MadeRun(stages={"decode:a": 100}), MadeRun(pid=300, stages=LOOKUP))
    assert "archive lookup" in said(diagnose(session))


def test_a_diagnosis_is_a_function_of_the_session(tmp_path):
    session = made_session(tmp_path, MadeRun(gpu=True, slow_batches={12: 30_000}))
    assert diagnose(session) == diagnose(session)


def test_an_empty_session_has_a_diagnosis(tmp_path):
    write_settings(tmp_path)
    diagnosis = diagnose(read(tmp_path))
    assert (diagnosis.budgets, diagnosis.batch_production, diagnosis.ranks, diagnosis.wait_share) == ([], [], [], None)


def test_a_process_of_no_role_is_only_listed(tmp_path):
    session = made_session(tmp_path)
    session.processes.append(ProbedProcess(1, 0, "host", "other", 0, None, None))
    assert said(diagnose(session)) == said(diagnose(made_session(tmp_path)))


BUSY = Finding("cpu-others", 0.95, "Others use it.", "busy", "Look at top.")
KILLED = Finding("oom-kill", 1.0, "The kernel killed it.", "limit", "Raise the limit.")


@pytest.fixture
def of_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "machine_findings", lambda session: [KILLED, BUSY])


@pytest.mark.usefixtures("of_machines")
def test_what_a_machine_is_short_of_comes_after_the_cause_of_the_wait(tmp_path):
    codes = [one.code for one in diagnose(made_session(tmp_path, MadeRun(stages=LOOKUP))).findings]
    assert codes[0] == "stage-lookup"
    assert codes.index("cpu-others") < codes.index("stage-decode")


def test_unequal_batches_are_said_only_where_nothing_else_makes_them_so(tmp_path, monkeypatch):
    run = MadeRun(stages={"decode:PIL": 4_000}, slow_batches=dict.fromkeys(range(9, 40, 10), 90_000), workers=4)
    session = made_session(tmp_path, run)
    assert said(diagnose(session)).endswith("while a later batch is ready and the next in order is not.")
    threads = Finding("threads", 0.1, "17 threads want to run on 2 cores.", "", "")
    monkeypatch.setattr(findings, "machine_findings", lambda session: [threads])
    assert said(diagnose(session)).endswith("17 threads want to run on 2 cores.")


def test_memory_that_workers_copy_is_said_whatever_it_weighs(tmp_path, monkeypatch):
    copied = Finding("copy-on-write", 0.0, "Workers copied 700 MB.", "", "")
    monkeypatch.setattr(findings, "machine_findings", lambda session: [copied])
    verdict = said(diagnose(made_session(tmp_path, MadeRun(stages={"decode:PIL": 100}))))
    assert verdict.startswith("Not input-bound")
    assert verdict.endswith("Workers copied 700 MB.")


def test_what_is_read_from_disk_weighs_what_is_waited_for_reading(tmp_path, monkeypatch):
    from_disk = Finding("reads-from-disk", 0.1, "All of it comes from disk.", "", "")
    monkeypatch.setattr(findings, "machine_findings", lambda session: [from_disk])
    stages = {"read:file": 9_000, "decode:PIL": 3_000}
    diagnosis = diagnose(made_session(tmp_path, MadeRun(stages=stages)))
    (found,) = [one for one in diagnosis.findings if one.code == "reads-from-disk"]
    assert found.weight == pytest.approx(0.75 * diagnosis.wait_share, rel=0.01)
    assert said(diagnosis).endswith("All of it comes from disk.")


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


def test_stages_are_named_in_words():
    assert named("getitem:rest") == "the dataset's own code"
    assert named("weather:rain") == "weather (rain)"


def test_data_work_in_the_loop_counts_as_data_and_its_lines_are_named(tmp_path):
    session = made_session(tmp_path, MadeRun(stages={"decode:a": 100}, forward=6_000))
    trainer = session.trainers[0]
    for row, (start, spans) in enumerate(zip(trainer.steps.start, trainer.steps.spans, strict=True)):
        trainer.steps.spans[row] = [("d", start + 500, 5_000), *spans]
    trainer.lines = [
        SourceLine("/home/ada/train.py:31:normalise", 70_000),
        SourceLine("/home/ada/train.py:9:<module>", 30_000),
    ]
    diagnosis = diagnose(session)
    assert diagnosis.wait_share == pytest.approx(0.02, abs=0.02)
    assert diagnosis.data_share == pytest.approx(0.6, abs=0.05)
    assert "Not input-bound" not in said(diagnosis)
    assert "data work in the training loop itself, most of it at train.py:31 (normalise)." in said(diagnosis)
    (finding,) = [one for one in diagnosis.findings if one.code == "data-work"]
    assert finding.evidence.endswith("70 % at train.py:31 (normalise); 30 % at train.py:9")


def test_time_before_the_model_is_named_by_its_line_where_nothing_was_seen_to_give_batches(tmp_path):
    session = made_session(tmp_path, MadeRun(forward=6_000))
    trainer = session.trainers[0]
    trainer.gets, trainer.passes = ReceivedBatches(), []
    for row, (start, spans) in enumerate(zip(trainer.steps.start, trainer.steps.spans, strict=True)):
        trainer.steps.spans[row] = [("n", start, 5_000), *spans]
    trainer.lines = [SourceLine("/home/ada/train.py:31:get_batch", 70_000)]
    verdict = said(diagnose(session))
    assert "passes before the model is called, most of it at train.py:31 (get_batch)." in verdict
