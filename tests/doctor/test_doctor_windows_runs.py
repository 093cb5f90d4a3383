"""Whole runs with their windows: the lower bounds that come of them, frameworks, and several ranks."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from statistics import fmean, median

import pytest
from observed_runs import DEADLINE_S, FEW_STEPS, KeptRun, Observed, measured, python, torchrun
from processes import eventually, finish, start_python

from headrace.doctor.measure import LowerBounds, lower_bounds, why_no_lower_bounds
from headrace.doctor.measure.batches import Join
from headrace.doctor.measure.view import TrainerView
from headrace.doctor.session.model import Session
from headrace.doctor.session.storage import decode_session
from headrace.doctor.session.trainers import MeasuredWindow

pytestmark = pytest.mark.alone

PATIENCE = 5
"""Times the deadline of `eventually`: a run comes to its later windows after many steps."""
COMPUTED_US = 20_000
"""What floor.py sleeps in a step."""
FRAMEWORKS = Path(__file__).parent / "framework_loops.py"


def floors_of(session: Session) -> LowerBounds:
    view = TrainerView.of(session, session.trainers[0], Join(session))
    found = lower_bounds(session, view)
    assert found is not None, why_no_lower_bounds(session, view)
    return found


def truth(file: Path, numbers: range) -> float:
    """Mean microseconds that those steps of floor.py took without their `next()`, as it measured itself."""
    steps = json.loads(file.read_text())
    return fmean(steps[number][1] for number in numbers)


def window(session: Session, name: str) -> MeasuredWindow:
    return next(one for one in session.trainers[0].windows if one.name == name)


def settled(one: MeasuredWindow) -> range:
    """Its steps, by number, those left out that belong to the change."""
    return range(one.first + one.settling, one.first + one.steps)


def windows(run: Observed) -> list[list[tuple[str, int, int]]]:
    """Of each rank: name, first step and steps."""
    return [[(one.name, one.first, one.steps) for one in trainer.windows] for trainer in run.session.trainers]


@pytest.fixture
def paced(paced_run: KeptRun) -> Observed:
    return paced_run.observed


def test_a_floor_is_the_step_without_its_next(paced: Observed) -> None:
    """What the script sleeps in a step bounds it from below; probe/test_probe_replayed_epochs.py has exact figures."""
    found = floors_of(paced.session)
    assert found.observed_us > 55_000  # the loop waits for the one worker
    assert found.replay_us is not None
    assert COMPUTED_US <= found.replay_us < found.observed_us


def test_in_replay_the_workers_rest(paced: Observed) -> None:
    replay = window(paced.session, "replay")
    settled_at = paced.session.trainers[0].steps.start[replay.first + replay.settling]
    assert not [t for maker in paced.session.makers for t in maker.batches.fetched if settled_at < t < replay.end]


def test_what_comes_after_the_observed_steps_is_no_part_of_the_diagnosis(paced: Observed) -> None:
    budget = paced.diagnosis.budgets[0]
    assert budget.steps == 20
    assert paced.diagnosis.batch_production[0].passes == 1
    end = paced.session.trainers[0].windows[0].end
    fetched = [one for maker in paced.session.makers for one in maker.batches.fetched]
    assert paced.diagnosis.batch_production[0].batches <= sum(one <= end for one in fetched)
    assert "no-replay" not in paced.codes
    assert paced.status == 0


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("options", "turns"), [((), 3), (("--real",), 13)], ids=["paced", "real"])
def test_the_replay_floor_is_a_step_on_synthetic_batches(tmp_path: Path, options: tuple[str, ...], turns: int) -> None:
    """Turn by turn, so that what else the machine does meets both. Of steps that compute there are more turns: on a
    shared machine two runs of the same loop differ by a tenth."""
    ratios = []
    for turn in range(turns):
        synthetic, folder = tmp_path / f"synthetic{turn}.json", tmp_path / str(turn)
        folder.mkdir()
        plain = python("floor.py", *options, "--synthetic", 60, "--truth", synthetic)
        subprocess.run(plain, timeout=DEADLINE_S, check=True)
        command = python("floor.py", *options, "--truth", folder / "truth.json")
        run = measured(command, folder, "--steps", "20", replay_steps=None)
        ratios.append((floors_of(run.session).replay_us or 0.0) / truth(synthetic, range(5, 60)))
    print(f"replay floor to synthetic batches, by turn: {', '.join(f'{ratio:.3f}' for ratio in ratios)}")
    assert median(ratios) == pytest.approx(1.0, abs=0.05)


def _through(framework: str, folder: Path) -> Observed:
    return measured([sys.executable, str(FRAMEWORKS), framework, "40"], folder, "--steps", str(FEW_STEPS))


@pytest.mark.parametrize(
    "framework",
    [
        pytest.param("accelerate", marks=pytest.mark.long),
        pytest.param("lightning", marks=pytest.mark.long),
        pytest.param("transformers", marks=pytest.mark.long),
    ],
)
def test_frameworks_replay_through_their_own_iterators(framework: str, tmp_path: Path) -> None:
    run = _through(framework, tmp_path)
    (trainer,) = run.session.trainers
    assert [one.name for one in trainer.windows][:2] == ["observe", "replay"]
    replay = trainer.windows[1]
    assert len(settled(replay)) == FEW_STEPS
    received = [start for start in trainer.gets.start if replay.start <= start < replay.end]
    assert received == []
    assert not {"hook-off", "no-replay"} & run.codes
    assert run.session.outcome.why == "steps"
    assert floors_of(run.session).replay_us is not None


@pytest.mark.long
def test_two_ranks_go_through_the_same_windows(tmp_path: Path) -> None:
    run = measured(torchrun(2, "ranks.py", "--steps", 4000, "--shapes", "--workers", 1), tmp_path, "--steps", "12")
    first, second = windows(run)
    assert first == second
    assert [name for name, *_ in first] == ["observe", "replay"]
    steps = [trainer.steps.number[-1] for trainer in run.session.trainers]
    assert steps[0] == steps[1]
    assert floors_of(run.session).replay_us < 0.5 * floors_of(run.session).observed_us  # type: ignore[operator]
    assert run.status == 0


@pytest.mark.long
def test_where_one_rank_cannot_replay_none_does(tmp_path: Path) -> None:
    run = measured(torchrun(2, "ranks.py", "--steps", 4000, "--unlike", 1), tmp_path, "--steps", "12")
    first, second = windows(run)
    assert first == second == [("observe", 3, 12)]
    said = {note.text for note in run.session.notes if note.code == "no-replay"}
    assert ["TypeError: no copy" in text for text in said] == [True]
    view = TrainerView.of(run.session, run.session.trainers[0], Join(run.session))
    assert lower_bounds(run.session, view) is None
    assert why_no_lower_bounds(run.session, view) in said
    assert run.status == 0


@pytest.mark.long
def test_an_interrupt_in_replay_leaves_no_process(tmp_path: Path) -> None:
    document = tmp_path / "session.json"
    command = ("--steps", 5, "--json", document, "--", *python("floor.py", "--truth", tmp_path / "truth"))
    run = start_python(_DOCTOR, tmp_path, *command)
    written = "headrace-doctor-*/evidence/*.jsonl"
    try:
        for _ in range(PATIENCE):
            if eventually(lambda: any('"window","observe"' in file.read_text() for file in tmp_path.glob(written))):
                break
    finally:
        run.send_signal(signal.SIGINT)
        status, _, _ = finish(run)
    assert status == 128 + signal.SIGINT
    session = decode_session(document.read_bytes())
    assert "observe" in {one.name for one in session.trainers[0].windows}
    assert not [one.pid for one in session.processes if Path(f"/proc/{one.pid}").exists()]


_DOCTOR = """
import sys, tempfile
from headrace.tools.command_line import main
tempfile.tempdir = sys.argv[1]
sys.argv = ["headrace", "doctor", *sys.argv[2:]]
main()
"""
