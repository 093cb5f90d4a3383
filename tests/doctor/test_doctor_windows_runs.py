"""Whole runs with their windows: the floors that come of them, frameworks, and several ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import fmean, median

import pytest
from observed_runs import CASES, DEADLINE_S, Observed, headrace, python, torchrun
from processes import source_paths

from headrace.doctor.analyse import diagnose
from headrace.doctor.analyse.join import Join
from headrace.doctor.analyse.view import View
from headrace.doctor.remedies.floors import floors, why_no_floors
from headrace.doctor.remedies.model import Floors
from headrace.doctor.run import REPLAY_STEPS
from headrace.doctor.session.document import decode
from headrace.doctor.session.model import Session, Window

TURNS = 5
FRAMEWORKS = Path(__file__).parent / "framework_loops.py"


def measured(command: list[str], folder: Path, *options: str) -> Observed:
    """Runs `command` under `headrace doctor` until the doctor ends it."""
    document = folder / "session.json"
    paths = ":".join([*filter(None, source_paths()), str(FRAMEWORKS.parent), str(CASES)])
    ran = headrace("doctor", "--json", str(document), *options, "--", *command, environment={"PYTHONPATH": paths})
    assert document.exists(), f"no session was written; exit status {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
    session = decode(document.read_bytes())
    return Observed(ran.returncode, ran.stdout, ran.stderr, session, diagnose(session))


def floors_of(session: Session) -> Floors:
    view = View.of(session, session.trainers[0], Join(session))
    found = floors(session, view)
    assert found is not None, why_no_floors(session, view)
    return found


def truth(file: Path, numbers: range) -> float:
    """Mean microseconds that those steps of floor.py took without their `next()`, as it measured itself."""
    steps = json.loads(file.read_text())
    return fmean(steps[number][1] for number in numbers)


def window(session: Session, name: str) -> Window:
    return next(one for one in session.trainers[0].windows if one.name == name)


def settled(one: Window) -> range:
    """Its steps, by number, those left out that belong to the change."""
    return range(one.first + one.settling, one.first + one.steps)


def windows(run: Observed) -> list[list[tuple[str, int, int]]]:
    """Of each rank: name, first step and steps."""
    return [[(one.name, one.first, one.steps) for one in trainer.windows] for trainer in run.session.trainers]


@pytest.fixture(scope="module")
def paced_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("paced")


@pytest.fixture(scope="module")
def paced(paced_folder: Path) -> Observed:
    return measured(python("floor.py", "--truth", paced_folder / "truth.json"), paced_folder, "--steps", "20")


@pytest.mark.parametrize("name", ["replay", "load"])
def test_a_floor_is_the_step_without_its_next(paced: Observed, paced_folder: Path, name: str) -> None:
    found = floors_of(paced.session)
    expected = truth(paced_folder / "truth.json", settled(window(paced.session, name))[:-1])  # then the window changes
    assert found.observed_us > 55_000  # the loop waits for the one worker
    assert {"replay": found.replay_us, "load": found.load_us}[name] == pytest.approx(expected, rel=0.05)


def test_under_load_the_workers_go_on_at_the_pace_observed(paced: Observed) -> None:
    load = window(paced.session, "load")
    made = [t for maker in paced.session.makers for t in maker.batches.fetched if load.start <= t < load.end]
    expected = (load.end - load.start) / floors_of(paced.session).observed_us
    assert 0.5 * expected - 2 < len(made) < 1.1 * expected + 4


def test_in_replay_the_workers_rest(paced: Observed) -> None:
    replay = window(paced.session, "replay")
    settled_at = paced.session.trainers[0].steps.start[replay.first + replay.settling]
    assert not [t for maker in paced.session.makers for t in maker.batches.fetched if settled_at < t < replay.end]


def test_the_drain_tells_the_loaders_own_pace(paced: Observed) -> None:
    found = floors_of(paced.session)
    assert found.drain_us == pytest.approx(found.observed_us, rel=0.3)


def test_what_comes_after_the_observed_steps_is_no_part_of_the_diagnosis(paced: Observed) -> None:
    budget = paced.diagnosis.budgets[0]
    assert budget.steps == 20
    assert paced.diagnosis.makings[0].passes == 1
    end = paced.session.trainers[0].windows[0].end
    assert paced.diagnosis.makings[0].batches <= sum(
        fetched <= end for maker in paced.session.makers for fetched in maker.batches.fetched
    )
    assert "no-replay" not in paced.codes
    assert paced.status == 0


@pytest.mark.long
@pytest.mark.parametrize("options", [(), ("--real",)], ids=["paced", "real"])
def test_the_replay_floor_is_the_step_on_a_synthetic_batch(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Turn by turn, so that what else the machine does meets both."""
    ratios = []
    for turn in range(TURNS):
        synthetic, folder = tmp_path / f"synthetic{turn}.json", tmp_path / str(turn)
        folder.mkdir()
        plain = python("floor.py", *options, "--synthetic", 60, "--truth", synthetic)
        subprocess.run(plain, timeout=DEADLINE_S, check=True)
        run = measured(python("floor.py", *options, "--truth", folder / "truth.json"), folder, "--steps", "20")
        ratios.append((floors_of(run.session).replay_us or 0.0) / truth(synthetic, range(5, 60)))
    print(f"replay floor to synthetic batches, by turn: {', '.join(f'{ratio:.3f}' for ratio in ratios)}")
    assert median(ratios) == pytest.approx(1.0, abs=0.05)


def _through(framework: str, folder: Path) -> Observed:
    return measured([sys.executable, str(FRAMEWORKS), framework, "40"], folder, "--steps", "10")


@pytest.mark.parametrize(
    "framework",
    [
        "accelerate",
        pytest.param("lightning", marks=pytest.mark.long),
        pytest.param("transformers", marks=pytest.mark.long),
    ],
)
def test_frameworks_replay_through_their_own_iterators(framework: str, tmp_path: Path) -> None:
    run = _through(framework, tmp_path)
    (trainer,) = run.session.trainers
    assert [one.name for one in trainer.windows][:2] == ["observe", "replay"]
    replay = trainer.windows[1]
    assert len(settled(replay)) == REPLAY_STEPS
    received = [start for start in trainer.gets.start if replay.start <= start < replay.end]
    assert received == []
    assert not {"hook-off", "no-replay"} & run.codes
    assert run.session.outcome.why == "steps"
    assert floors_of(run.session).replay_us is not None


def test_two_ranks_go_through_the_same_windows(tmp_path: Path) -> None:
    run = measured(torchrun(2, "ranks.py", "--steps", 4000, "--shapes", "--workers", 1), tmp_path, "--steps", "12")
    first, second = windows(run)
    assert first == second
    assert [name for name, *_ in first] == ["observe", "replay", "load", "drain"]
    steps = [trainer.steps.number[-1] for trainer in run.session.trainers]
    assert steps[0] == steps[1]
    assert floors_of(run.session).replay_us < 0.5 * floors_of(run.session).observed_us  # type: ignore[operator]
    assert run.status == 0


def test_where_one_rank_cannot_replay_none_does(tmp_path: Path) -> None:
    run = measured(torchrun(2, "ranks.py", "--steps", 4000, "--unlike", 1), tmp_path, "--steps", "12")
    first, second = windows(run)
    assert first == second == [("observe", 3, 12)]
    said = {note.text for note in run.session.notes if note.code == "no-replay"}
    assert said == {"The run was only observed: on rank 1 its batches cannot be copied (Socket: TypeError: no copy)."}
    view = View.of(run.session, run.session.trainers[0], Join(run.session))
    assert floors(run.session, view) is None
    assert why_no_floors(run.session, view) in said
    assert run.status == 0
