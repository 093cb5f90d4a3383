"""A script that saves, logs and tracks at every step, measured: its folder is as before."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import h5py
import pytest
from file_trees import Tree, project, tree
from observed_runs import FEW_STEPS, headrace, python

from headrace.doctor.session.model import Session
from headrace.doctor.session.storage import decode_session

OF_BEFORE = (
    "last.pt",
    "best.pt",
    "model.safetensors",
    "metrics.csv",
    "sample.jpg",
    "traced.pt",
    "script.pt",
    "package.pt",
)
"""Files of an earlier training that the script writes again. It would fail to read them. It adds to `features.h5`."""


@dataclass(frozen=True)
class Trained:
    """A run, and its folders before and after."""

    status: int
    out: str
    error: str
    session: Session
    before: tuple[Tree, Tree]
    after: tuple[Tree, Tree]
    kept: Path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Four steps of it, in a project with results of an earlier run."""
    folder = tmp_path_factory.mktemp("saves")
    work, elsewhere = project(folder / "work"), folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "far.pt").write_bytes(b"far away")
    for name in OF_BEFORE:
        (work / name).write_bytes(b"of before: " + name.encode())
    shutil.rmtree(work / "runs")
    with h5py.File(work / "features.h5", "w") as features:
        features["of before"] = [1]
    (work / "checkpoint-0").mkdir()
    before = tree(work), tree(elsewhere)
    document, kept = folder / "session.json", folder / "kept"
    options = ("--steps", "4", "--warmup", "2", "--json", str(document), "--keep", str(kept))
    command = python("saves_everything.py", elsewhere)
    ran = headrace("doctor", *options, "--", *command, folder=work, replay_steps=FEW_STEPS)
    session = decode_session(document.read_bytes()) if document.exists() else pytest.fail(ran.stderr)
    return Trained(ran.returncode, ran.stdout, ran.stderr, session, before, (tree(work), tree(elsewhere)), kept)


def test_its_folder_is_as_before(trained: Trained) -> None:
    assert trained.after[0] == trained.before[0]


def test_a_checkpoint_elsewhere_is_as_before(trained: Trained) -> None:
    assert trained.after[1] == trained.before[1]


def test_the_run_was_measured(trained: Trained) -> None:
    assert (trained.status, trained.session.outcome.why) == (0, "steps"), trained.out + trained.error
    assert [len(trainer.steps.number) >= 4 for trainer in trained.session.trainers] == [True]


def test_it_says_what_it_has_put_back(trained: Trained) -> None:
    texts = {note.code: note.text for note in trained.session.notes}
    assert set(texts) == {"put-back"}, texts
    assert "restored: " in texts["put-back"]
    assert f"moved to {trained.kept}/written: " in texts["put-back"]
    assert "put-back" not in [finding["code"] for finding in _document(trained)["diagnosis"]["findings"]]


def _document(trained: Trained) -> dict[str, dict[str, list[dict[str, str]]]]:
    document: dict[str, dict[str, list[dict[str, str]]]] = json.loads((trained.kept / "session.json").read_bytes())
    return document


def test_what_it_wrote_is_kept(trained: Trained) -> None:
    written = trained.kept / "written"
    assert (written / "wandb" / "run-1" / "events").exists()
    assert (written / "outputs" / "samples" / "0.txt").read_text() == "x"
    assert (trained.kept / "scratch" / "trackers" / "wandb" / "events").exists()
