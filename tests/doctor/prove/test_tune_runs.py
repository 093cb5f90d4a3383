"""`headrace tune`, as a user starts it, on small scripts. test_tune_trials.py holds the same to runs that are made."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from observed_runs import CASES, headrace, python, torchrun
from processes import source_paths
from typer.testing import CliRunner

from headrace.tools.command_line import app

SHORT = ("--steps", "20", "--runs", "2")
PATHS = {"PYTHONPATH": ":".join([*filter(None, source_paths()), str(CASES.parent), str(CASES)])}


@dataclass(frozen=True)
class Tuned:
    ran: subprocess.CompletedProcess[str]
    document: dict[str, Any]


def tune(command: list[str], folder: Path, *options: str) -> Tuned:
    """In `folder`, which it has to leave as it is but for the document."""
    document = folder / "tuned.json"
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    options = (*(options or SHORT), "--json", str(document))
    ran = headrace("tune", *options, "--", *command, environment=PATHS, folder=folder)
    found = json.loads(document.read_text()) if document.exists() else {}
    document.unlink(missing_ok=True)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    return Tuned(ran, found)


@pytest.mark.long
def test_finds_workers_for_a_script_that_has_none(tmp_path: Path) -> None:
    """Of whose samples sleep as long as a step: any worker halves it."""
    tuned = tune(python("tunable.py", "batch-sampler"), tmp_path)
    assert tuned.ran.returncode == 0, tuned.ran.stderr
    assert tuned.document["present"]["num_workers"] == 0
    assert [one["why"] for one in tuned.document["runs"]] == ["measured", "measured"]
    assert tuned.document["runs"][1]["arguments"]["num_workers"] > 0
    assert "trying " in tuned.ran.stderr
    assert "Tried" in tuned.ran.stdout
    assert "pin_memory: " in tuned.ran.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["short"], 125, "5 measured steps"),
        (["own"], 125, "no batch from a torch DataLoader"),
        (["no-steps"], 125, "no optimizer stepped"),
        (["failing"], 1, "exit status 1 after 1 step: RuntimeError: no such layer"),
        (["two-loaders"], 0, "another DataLoader"),
        (["timeout", "--workers", "1"], 0, "num_workers=0: not tried, since timeout"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_each_kind_of_script_has_an_outcome(arguments: list[str], status: int, text: str, tmp_path: Path) -> None:
    tuned = tune(python("tunable.py", *arguments), tmp_path)
    assert tuned.ran.returncode == status, tuned.ran.stderr
    assert text in " ".join((tuned.ran.stdout + tuned.ran.stderr).split())


@pytest.mark.long
def test_an_iterable_dataset_keeps_its_number_of_workers(tmp_path: Path) -> None:
    tuned = tune(python("tunable.py", "iterable", "--workers", 1), tmp_path)
    assert {one["num_workers"] for one in tuned.document["grid"]} == {1}


@pytest.mark.long
def test_workers_that_start_in_each_epoch_are_kept(tmp_path: Path) -> None:
    tuned = tune(python("tunable.py", "epochs", "--workers", 1), tmp_path, "--steps", "60", "--runs", "2")
    assert {one["persistent_workers"] for one in tuned.document["grid"]} == {True, False}
    assert tuned.document["choice"]["persistent_workers"]


@pytest.mark.long
def test_all_ranks_have_the_same_arguments(tmp_path: Path) -> None:
    tuned = tune(torchrun(2, "ranks.py", "--steps", 80), tmp_path)  # enough to empty the longest queue that is tried
    assert tuned.ran.returncode == 0, tuned.ran.stderr
    assert tuned.document["runs"][1]["why"] == "measured"
    assert any(note.startswith("2 ranks: ") for note in tuned.document["notes"])


@pytest.mark.long
def test_the_trainer_of_transformers_is_told_its_own_names(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    script = tmp_path / "train.py"
    script.write_text(
        """
import time

import torch
from transformers import Trainer, TrainingArguments


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        time.sleep(0.004)
        return {"x": torch.full((4,), float(index))}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x):
        return {"loss": self.layer(x).mean()}


arguments = TrainingArguments(
    output_dir="out", per_device_train_batch_size=2, report_to=[], disable_tqdm=True, use_cpu=True
)
Trainer(Model(), arguments, train_dataset=Slow()).train()
"""
    )
    tuned = tune([sys.executable, str(script)], tmp_path)
    assert tuned.ran.returncode == 0, tuned.ran.stderr
    assert tuned.document["paste"]["line"].startswith("TrainingArguments(..., dataloader_num_workers=")
    assert tuned.document["paste"]["where"] == f"{script}:26"


@pytest.mark.parametrize("options", [["--runs", "0"], ["--steps", "3"], ["--max-seconds", "0"]], ids=" ".join)
def test_limits_that_are_none_are_refused(options: list[str]) -> None:
    assert CliRunner().invoke(app, ["tune", *options, "--", "true"]).exit_code == 2


def test_a_document_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    document, touched = tmp_path / "no" / "such" / "file", tmp_path / "touched"
    asked = CliRunner().invoke(app, ["tune", "--json", str(document), "--", "touch", str(touched)])
    assert asked.exit_code == 125
    assert "--json: " in asked.stderr
    assert not touched.exists()
