"""Whole runs whose samples are looked at: whatever the look meets, the run ends well and the diagnosis stands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from file_trees import tree
from observed_runs import FEW_STEPS, headrace, python, torchrun
from PIL import Image

from headrace.doctor.attach.command import ENDS_S
from headrace.doctor.session.model import Session
from headrace.doctor.session.storage import decode_session

COUNT = 40
LOOK_S, GRACE_S = 10.0, 5.0


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    state = np.random.default_rng(0)
    for number in range(COUNT):
        coarse = state.integers(0, 256, (8, 10, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((320, 256), Image.Resampling.BICUBIC).save(folder / f"{number:02}.jpg")
    return folder


@dataclass(frozen=True)
class LookedRun:
    status: int
    out: str
    error: str
    session: Session

    @property
    def ending_s(self) -> float:
        """From the end of the measured steps to that of the command."""
        ends = [one.end for one in self.session.processes if one.role == "trainer" and one.end is not None]
        return (self.session.outcome.duration - max(ends)) / 1e6

    @property
    def started_again(self) -> bool:
        return "the command again" in self.error

    @property
    def notes(self) -> dict[str, str]:
        return {note.code: note.text for note in self.session.notes}


def looked(folder: Path, command: list[str], *options: str, tries_loader: bool = True) -> LookedRun:
    """Diagnose a command whose working folder is `folder`; its session lies beside that."""
    document = folder.with_suffix(".json")
    call = ("doctor", "--json", str(document), *options, "--", *command)
    ran = headrace(*call, folder=folder, replay_steps=FEW_STEPS, tries_loader=tries_loader)
    assert document.exists(), ran.stderr
    return LookedRun(ran.returncode, ran.stdout, ran.stderr, decode_session(document.read_bytes()))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.mark.long
def test_a_run_that_is_killed_by_its_look_is_diagnosed(work: Path, photos: Path) -> None:
    run = looked(work, python("odd_looks.py", photos, "--odd", "kill"), "--steps", "10")
    assert (run.status, run.session.outcome.why) == (0, "steps")
    assert run.session.trainers
    assert not run.started_again
    trial = run.session.loader_trial
    assert trial is not None
    assert (trial.degree, trial.reason) == ("no", run.notes["no-look"])


@pytest.mark.long
@pytest.mark.parametrize("odd", ["raise", "print", "leave", "exit", "nothing"])
def test_whatever_a_sample_does_the_run_ends_as_one_that_was_measured(odd: str, work: Path, photos: Path) -> None:
    before = tree(photos)
    run = looked(work, python("odd_looks.py", photos, "--odd", odd), "--steps", "10")
    assert (run.status, run.session.outcome.why) == (0, "steps")
    trial = run.session.loader_trial
    assert trial is not None
    is_looked_at = odd in ("print", "nothing")
    assert (trial.why == "measured", trial.degree != "no") == (is_looked_at, is_looked_at), trial.reason
    assert ("no-look" in run.notes) == (odd in ("exit", "leave"))
    assert {"raise": "LookupError: ", "exit": "SystemExit: 6"}.get(odd, "") in trial.reason
    assert tree(photos) == before
    assert list(work.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize("odd", ["hang", "spin"])
def test_a_sample_that_never_comes_ends_the_run_in_time(odd: str, work: Path, photos: Path) -> None:
    run = looked(work, python("odd_looks.py", photos, "--odd", odd), "--steps", "10")
    assert (run.status, run.session.outcome.why) == (0, "steps")
    assert run.ending_s < LOOK_S + GRACE_S + ENDS_S[-1][0] + 4
    assert run.session.loader_trial is not None
    for text in (run.notes["no-look"], run.session.loader_trial.reason):
        assert "5 s" in text


@pytest.mark.long
def test_a_short_run_is_started_again_for_the_look(work: Path, photos: Path) -> None:
    command = python("odd_looks.py", photos, "--epochs", "2", "--status", "0", "--log", "runs.log")
    (work / "runs.log").write_text("of before\n")
    before = tree(work), tree(photos)
    run = looked(work, command, "--steps", "1000")
    assert run.started_again
    assert (run.status, run.session.outcome.why) == (0, "finished")
    assert (run.out.count("epoch 0"), run.out.count("epoch 1")) == (1, 1)
    assert (tree(work), tree(photos)) == before
    assert run.session.looked_image is not None
    assert run.session.loader_trial is not None
    assert run.session.loader_trial.why == "measured"


@pytest.mark.long
def test_a_short_run_that_fails_is_not_started_again(work: Path, photos: Path) -> None:
    run = looked(work, python("odd_looks.py", photos, "--epochs", "2", "--status", "7"), "--steps", "1000")
    assert (run.status, run.session.outcome.why) == (7, "failed")
    assert not run.started_again


@pytest.mark.long
def test_a_run_that_is_only_observed_is_not_looked_at(work: Path, photos: Path) -> None:
    log = work / "runs.log"
    run = looked(work, python("odd_looks.py", photos, "--epochs", "2", "--odd", "kill", "--log", log), "--observe")
    assert (run.status, run.session.outcome.why) == (0, "finished")
    assert "again" not in run.error
    assert run.session.loader_trial is None
    assert run.session.looked_image is None
    assert log.read_text() == "started\n"


@pytest.mark.long
def test_the_first_of_two_ranks_looks_and_both_end_well(work: Path, photos: Path) -> None:
    run = looked(work, torchrun(2, "odd_looks.py", photos, "--ranks", "--odd", "print"), "--steps", "10")
    assert (run.status, run.session.outcome.why) == (0, "steps")
    assert {one.ended for one in run.session.processes if one.role == "trainer"} == {"steps"}
    assert run.out.count("a sample") == 4 * 8 + 2  # of one rank's samples, alone and mixed
    assert run.session.looked_image is not None
