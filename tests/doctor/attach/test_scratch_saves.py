"""A script that saves, logs and tracks at every step, measured: its files stay, and its weights are its own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import h5py
import pytest
import torch
from file_trees import Tree, project, tree
from observed_runs import FEW_STEPS, headrace, python
from safetensors.numpy import load_file

from headrace.doctor.session.model import Session
from headrace.doctor.session.storage import decode_session

WRITTEN = ("last.pt", "best.pt", "model.safetensors", "metrics.csv", "sample.jpg", "traced.pt", "script.pt")
"""Files of an earlier training that the script writes again. It adds to `features.h5` and `train.log`."""
UNTOUCHED = ("notes.txt", "last.ckpt", "best.ckpt", "run.sh", "table.bin", "runs/first/events", "runs/second/events")
OBSERVED = 11
"""Warm-up and measured steps: the script's own. What follows repeats batches."""


@dataclass(frozen=True)
class Trained:
    """A run, and its folders before and after."""

    status: int
    out: str
    error: str
    session: Session
    before: Tree
    work: Path
    elsewhere: Path
    document: Path
    kept: Path

    @property
    def notes(self) -> dict[str, str]:
        return {note.code: note.text for note in self.session.notes}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Four measured steps of it, in a project with results of an earlier run."""
    folder = tmp_path_factory.mktemp("saves")
    work, elsewhere = project(folder / "work"), folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "far.pt").write_bytes(b"far away")
    for name in WRITTEN:
        (work / name).write_bytes(b"of before: " + name.encode())
    with h5py.File(work / "features.h5", "w") as features:
        features["of before"] = [1]
    for step in range(OBSERVED, 60):  # the script rotates its checkpoints: these are an earlier training's
        (work / f"checkpoint-{step}").mkdir()
        (work / f"checkpoint-{step}" / "older.pt").write_bytes(b"of before")
    before = tree(work)
    kept, document = folder / "kept", folder / "session.json"
    options = ("--steps", "4", "--json", str(document))
    call = ("doctor", *options, "--", *python("saves_everything.py", elsewhere))
    ran = headrace(*call, folder=work, replay_steps=FEW_STEPS, kept=kept)
    session = decode_session(document.read_bytes()) if document.exists() else pytest.fail(ran.stderr)
    return Trained(ran.returncode, ran.stdout, ran.stderr, session, before, work, elsewhere, document, kept)


def test_the_run_was_measured_and_replayed(trained: Trained) -> None:
    assert (trained.status, trained.session.outcome.why) == (0, "steps"), trained.out + trained.error
    assert "replay" in {window.name for trainer in trained.session.trainers for window in trainer.windows}
    assert set(trained.notes) <= {"scratch-saves"}, trained.notes


def test_files_that_the_script_does_not_write_are_as_before(trained: Trained) -> None:
    after = tree(trained.work)
    assert {name: after.get(name) for name in UNTOUCHED} == {name: trained.before[name] for name in UNTOUCHED}


def test_saved_weights_are_those_of_the_last_step_of_its_own(trained: Trained) -> None:
    files = [trained.work / name for name in ("last.pt", "best.pt", "stream.pt")]
    assert [torch.load(file)["step"] for file in [*files, trained.elsewhere / "far.pt"]] == [OBSERVED - 1] * 4
    assert load_file(trained.work / "arrays.safetensors")["a"].tolist() == [OBSERVED - 1] * 3
    assert "tmp.pt" not in {path.name for path in trained.work.iterdir()}


def test_it_deletes_no_checkpoint_for_one_of_repeated_batches(trained: Trained) -> None:
    older = {f"checkpoint-{step}/older.pt" for step in range(OBSERVED, 60)}
    assert older <= tree(trained.work).keys()
    assert not {f"checkpoint-{step}/model.pt" for step in range(OBSERVED, 60)} & tree(trained.work).keys()


def test_it_names_the_weights_that_were_saved(trained: Trained) -> None:
    assert str(trained.work / "last.pt") in trained.notes["scratch-saves"]
    document = json.loads(trained.document.read_bytes())
    assert "scratch-saves" not in {finding["code"] for finding in document["diagnosis"]["findings"]}


def test_trackers_are_offline_and_write_apart(trained: Trained) -> None:
    assert (trained.kept / "scratch" / "trackers" / "wandb" / "events").exists()
    assert (trained.kept / "scratch" / "saves" / str(trained.work.resolve())[1:] / "last.pt").exists()


def test_a_script_that_prepares_its_data_keeps_them(trained: Trained) -> None:
    prepared = {path.name for path in (trained.elsewhere / "prepared").iterdir()}
    assert prepared == {"done", *(f"{n}.png" for n in range(8))}
