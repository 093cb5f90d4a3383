"""The whole way: a script that waits is diagnosed, its Loader is tried on its files, and the script trains from it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from observed_runs import CASES, FEW_STEPS, headrace
from patching import git_apply

from headrace.doctor.session.after_run import LoaderTrial
from headrace.doctor.session.storage import decode_session

ADOPTED = Path(__file__).parents[1] / "adopted"


def adopted(folder: Path, script: Path, data: Path, *arguments: str) -> tuple[LoaderTrial, str]:
    """Diagnose a copy of a script in a folder, apply the patch, and return the trial and what was printed."""
    shutil.copy(script, folder)
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    outputs = ("--json", "session.json", "--draft", "draft.py", "--apply", "loader.patch")
    ran = headrace(
        *("doctor", "--steps", "20", *outputs, "--", sys.executable, script.name, str(data), *arguments),
        folder=folder,
        replay_steps=FEW_STEPS,
        tries_loader=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert "trying Headrace's Loader on the run's files" in ran.stderr
    assert {path: path.stat().st_mtime_ns for path in data.rglob("*")} == before
    trial = decode_session((folder / "session.json").read_bytes()).loader_trial
    assert trial is not None
    assert (trial.why, trial.detail) == ("measured", "")
    opened = trial.module.replace(trial.files["MANIFEST"], str(folder / "draft.parquet"))
    assert (folder / "draft.py").read_text() == opened
    assert "Headrace's Loader" in ran.stdout
    return trial, ran.stderr


def trained(folder: Path, script: str, data: Path, *arguments: str) -> str:
    command = [sys.executable, script, str(data), *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=120).stdout


@pytest.mark.long
def test_a_script_trains_on_the_same_samples_with_its_patch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ADOPTED))
    from adopted_data import class_folder

    data = tmp_path / "data"
    class_folder(data, 20)
    trial, said = adopted(tmp_path, CASES / "class_photos.py", data)
    assert trial.degree == "exact", trial.reason
    assert "no part to check" in said
    before = trained(tmp_path, "class_photos.py", data, "--epochs", "2")
    git_apply(tmp_path, "loader.patch")
    text = (tmp_path / "class_photos.py").read_text()
    assert "headrace_loader.make_dataloader(batch_size=8)" in text
    assert "DataLoader(" not in text
    after = trained(tmp_path, "class_photos.py", data, "--epochs", "2")
    samples = [re.findall(r"epoch (\d): (\d) (\S+)", printed) for printed in (before, after)]
    assert len(samples[0]) == len(samples[1]) == 40
    assert [one[:2] for one in samples[0]] == [one[:2] for one in samples[1]]
    means = [[float(one[2]) for one in each] for each in samples]
    assert means[1] == pytest.approx(means[0], abs=0.02), "resized by another filter, of the same pictures"


@pytest.mark.long
@pytest.mark.parametrize(("name", "maker"), [("captions_csv", "captioned"), ("folder_v1", "class_folder")])
def test_public_kinds_of_scripts_train_with_their_patch(
    name: str, maker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("torchvision", "tokenizers", "transformers", "pandas"):
        pytest.importorskip(module, exc_type=ImportError)
    monkeypatch.syspath_prepend(str(ADOPTED))
    from adopted_data import MAKERS

    data = tmp_path / "data"
    MAKERS[maker](data, 96)
    trial, _ = adopted(tmp_path, ADOPTED / f"{name}.py", data, "--workers", "1", "--steps", "100000")
    compared = subprocess.run([sys.executable, "draft.py"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert not compared.stdout.splitlines()[-1].startswith("Different")
    assert trial.degree in ("part", "exact")
    if trial.degree == "exact":
        git_apply(tmp_path, "loader.patch")
        trained(tmp_path, f"{name}.py", data, "--steps", "20")
