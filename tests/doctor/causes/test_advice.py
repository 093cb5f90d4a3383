"""Advice that holds: its order, the gap that it is measured against, noise, and causes that are none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from machine_findings import quantities
from made_prescriptions import made, prescribed, replayed, with_batches
from made_sessions import MadeRun, outcome, process, read, write_evidence, write_settings
from report_pages import codes, first_gain, said

from headrace.doctor.causes import EFFORTS, Prescription, ProofOutcome, Remedy, diagnose
from headrace.doctor.causes.prescription import ranked, remedy_kinds
from headrace.doctor.measure.batches import batch_rows
from headrace.doctor.report.remedy_text import first_screen, proved
from headrace.doctor.report.run_text import last_words
from headrace.doctor.session.after_run import Proof
from headrace.doctor.session.model import ProbedProcess, Session
from headrace.doctor.session.trainers import Trainer
from headrace.doctor.simulate import Prediction

pytestmark = pytest.mark.usefixtures("kept_simulations")

BASELINE_US = 100_000.0


def remedy(code: str, step_us: float | None, *, high_us: float | None = None, helps: bool = True) -> Remedy:
    prediction = None
    if step_us is not None:
        high_us = high_us or 1.1 * step_us
        prediction = Prediction(step_us, 0.9 * step_us, high_us, BASELINE_US / step_us)
    kind = remedy_kinds().get(code)
    effort = EFFORTS[0] if kind is None else kind.effort
    return Remedy(code, code, helps, "Because.", prediction, "medium", effort=effort)


def proof(code: str, step_us: float, *, recommended: bool = True) -> ProofOutcome:
    speedup = BASELINE_US / step_us
    low_us, high_us = 0.95 * step_us, 1.05 * step_us
    return ProofOutcome([code], None, "measured", "", step_us, low_us, high_us, speedup, "same", recommended)


def order(remedies: list[Remedy], *outcomes: ProofOutcome, bound_us: float | None = None) -> list[str]:
    return [one.code for one in ranked(remedies, outcomes, bound_us)]


def test_the_least_change_that_reaches_the_lower_bound_comes_first() -> None:
    steps = {"pad-to-batch": 17_000, "loader": 17_000, "indexed-tar": 18_000, "workers": 30_000}
    found = [remedy(code, step_us) for code, step_us in steps.items()]
    assert order(found, bound_us=17_000) == ["indexed-tar", "pad-to-batch", "loader", "workers"]
    assert order(found, bound_us=5_000) == ["pad-to-batch", "loader", "indexed-tar", "workers"]


def test_what_was_proved_comes_before_what_is_only_predicted() -> None:
    found = [remedy("indexed-tar", 40_000, high_us=55_000), remedy("workers", 60_000)]
    assert order(found, proof("workers", 50_000)) == ["workers", "indexed-tar"]
    assert order(found, proof("workers", 60_000)) == ["workers", "indexed-tar"]
    assert order(found, proof("workers", 50_000), proof("indexed-tar", 52_000)) == ["workers", "indexed-tar"]


def test_what_a_proof_refused_comes_last_of_what_helps() -> None:
    found = [remedy("indexed-tar", 40_000), remedy("workers", 60_000), remedy("cache", None, helps=False)]
    refused = proof("indexed-tar", 110_000, recommended=False)
    assert order(found, refused) == ["workers", "indexed-tar", "cache"]


@pytest.mark.parametrize(("step_us", "figures"), [(220_000.0, ["220 ms", "0.45 ×"]), (104_500.0, ["104 ms", "0.96 ×"])])
def test_a_refused_proof_says_what_it_proved(step_us: float, figures: list[str]) -> None:
    outcome = replace(proof("indexed-tar", step_us, recommended=False), is_slower=step_us > 1.1 * BASELINE_US)
    assert quantities(proved(outcome)) == figures
    assert ("slower" in proved(outcome)) == outcome.is_slower
    busy = replace(outcome, spread=9.0, is_slower=False)
    assert (outcome.is_refused, busy.is_refused, busy.is_undecided) == (True, False, True)
    assert order([remedy("indexed-tar", 40_000), remedy("workers", 60_000)], busy)[0] == "indexed-tar"


def test_the_first_remedy_is_named_by_its_proof_even_where_that_is_longer_than_was_predicted() -> None:
    found = [remedy("loader", 40_000, high_us=60_000), remedy("workers", 90_000)]

    def named(outcome: ProofOutcome) -> tuple[str, str]:
        gain = first_gain(Prescription(None, "", "", found, outcomes=[outcome]))
        return gain.partition(":")[0], quantities(gain)[0]

    assert named(proof("loader", 80_000)) == ("Loader", "80.0 ms")
    assert named(proof("workers", 80_000)) == ("Workers", "80.0 ms")
    undecided = replace(proof("loader", 80_000, recommended=False), unclear="no control run")
    assert named(undecided) == ("Loader", "40.0 ms")


SLOW = MadeRun(stages={"decode:Pillow load": 20_000})
"""Two workers: 10 ms a step, of which 3.5 are training."""


def speed(session: Session) -> list[str] | None:
    """Figures of what the first screen's sentence adds on how fast a step could be; None if it adds nothing."""
    diagnosis, whole = diagnose(session), prescribed(session)
    lead, _, speed = first_screen(diagnosis, replace(whole, remedies=[])).sentence.partition("; ")
    assert lead.rstrip(".") == diagnosis.verdict.text.rstrip(".")
    return quantities(speed) if speed else None


@pytest.mark.long
def test_without_a_remedy_the_sentence_ends_with_the_gap() -> None:
    assert speed(replayed(made(SLOW), 3_400)) == ["3.4 ms"]
    assert speed(replayed(made(SLOW), 10_200)) == []
    assert speed(made(SLOW)) is None, "nothing was replayed"
    assert speed(replayed(made(MadeRun(stages={"decode:a": 500})), 3_400)) is None, "nothing waits"


def test_without_workers_the_gap_is_the_wait() -> None:
    """A replay that is much shorter than the step without its wait is of something else."""
    run = MadeRun(stages={"decode:Pillow load": 1_000}, workers=0, forward=6_000, backward=6_000)
    session = replayed(made(run), 5_000)
    assert diagnose(session).data_share == pytest.approx(0.074, abs=0.002)
    assert speed(session) == ["12.5 ms"]


def test_a_proof_that_is_shorter_than_cached_batches_withdraws_that_bound() -> None:
    session = replayed(made(SLOW), 8_680)
    session.proofs = [Proof(["workers"], {}, "measured", steps=[4_980] * 40, samples="same")]
    session.controls = [Proof([], {}, "measured", steps=[10_500] * 40)]
    found = prescribed(session)
    assert found.lower_bounds is not None
    assert found.lower_bounds.replay_us is None
    assert found.why_no_windows
    assert speed(session) == ["5.0 ms"], "the proof's"


def test_no_remedy_rests_on_fewer_than_ten_steps() -> None:
    few = prescribed(made(replace(SLOW, steps=9)))
    assert (few.remedies, few.together, few.best) == ([], [], None)
    assert "5 measured steps" in few.stop
    assert prescribed(made(replace(SLOW, steps=24))).remedies


def test_noise_stands_in_the_verdict() -> None:
    session = made(SLOW, columns={"cpu_cores_other": 4.0})
    session.controls = [Proof([], {}, "measured", steps=[14_000] * 30)]
    (noise,) = [one for one in diagnose(session).statements if one.code == "noise"]
    assert quantities(noise.text) == ["50 %", "1.43 ×"]
    quiet = made(SLOW, columns={"cpu_cores_other": 0.4})
    quiet.controls = [Proof([], {}, "measured", steps=[10_500] * 30)]
    assert "noise" not in codes(diagnose(quiet))


def failed(folder: Path, *errors: tuple[int, int, str]) -> Session:
    """Processes with their parents and how each failed."""
    write_settings(folder)
    for pid, parent, error in errors:
        write_evidence(folder, f"host-{pid}-0", [process(pid, parent=parent), ["error", 9, error]])
    launcher_says = ["=" * 20, "train.py FAILED", "Root Cause (first observed failure):", "=" * 20]
    return read(folder, outcome=outcome(status=1, why="failed", last_lines=launcher_says))


OWN = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\nFileNotFoundError: no /data/train'
ELASTIC = (
    "Traceback (most recent call last):\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n=====\n"
)
ACCELERATE = (
    "Traceback (most recent call last):\nsubprocess.CalledProcessError: Command '['python', 'train.py']' returned"
)
SPAWN = (
    "Traceback (most recent call last):\ntorch.multiprocessing.spawn.ProcessRaisedException: \n-- Process 1 terminated"
)


@pytest.mark.parametrize("launcher", [ELASTIC, ACCELERATE, SPAWN], ids=["torchrun", "accelerate", "spawn"])
def test_under_a_launcher_the_scripts_own_error_is_named(launcher: str, tmp_path: Path) -> None:
    session = failed(tmp_path, (100, 1, launcher), (101, 100, OWN))
    ending = diagnose(session).ending[0]
    assert (ending.code, ending.text.partition(": ")[2]) == ("failed", "FileNotFoundError: no /data/train.")
    assert last_words(session)[-1] == "FileNotFoundError: no /data/train"


PEER = (
    "Traceback (most recent call last):\n"
    "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:8098."
)


def test_a_ranks_own_error_comes_before_those_of_ranks_that_lost_it(tmp_path: Path) -> None:
    session = failed(tmp_path, (100, 1, ELASTIC), (101, 100, PEER), (102, 100, OWN))
    assert "FileNotFoundError: no /data/train" in said(diagnose(session))


@pytest.mark.parametrize(("ended", "how"), [(None, "killed"), ("exit", "by itself")])
def test_a_rank_that_left_without_an_error_is_named_before_others(tmp_path: Path, ended: str | None, how: str) -> None:
    session = failed(tmp_path, (100, 1, ELASTIC), (101, 100, PEER))
    session.processes.append(ProbedProcess(102, 100, session.processes[0].host, "trainer", 0, 9, ended))
    session.trainers.append(Trainer(102, session.processes[0].host, 1))
    told = said(diagnose(session))
    assert "process 102" in told
    assert how in told
    assert "closed by peer" not in told


@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        ("float32[64,3,224,224] int64[64]", 64),
        ("float32[64,3,224,224]", 64),
        ("int64[12,1024] int64[12,1024]", 12),
        ("float32[3,224,224] int64[]", None),
        ("float32[3,224,224]", None),
        ("float32[3,224,224] float32[3,112,112]", None),
        ("float32[1,3,8,8] int64[1]", None),
        ("", None),
    ],
)
def test_rows_of_a_batch_by_its_shapes(shape: str, rows: int | None) -> None:
    assert batch_rows(shape) == rows


def test_a_dataset_that_batches_itself_is_measured_by_sample() -> None:
    run = MadeRun(stages={"decode:Pillow load": 20_000}, samples=1, facts={"batch_size": None, "length": 100})
    session = with_batches(made(run), "float32[64,3,8,8] int64[64]", 4096)
    (making,) = diagnose(session).batch_production
    assert making.item_samples == 64
    assert making.stages[0].wall_us == pytest.approx(20_000 / 64)
    assert making.batch_us == 20_000


def test_an_index_is_not_advised_for_a_stream() -> None:
    scans = {"scan:tarfile headers": 9_000, "decode:Pillow load": 9_000}
    assert "indexed-tar" in [one.code for one in prescribed(made(MadeRun(stages=scans))).remedies]
    stream = MadeRun(stages={**scans, "lookup:tarfile member": 20}, facts={"iterable": True})
    assert "indexed-tar" not in [one.code for one in prescribed(made(stream)).remedies]
