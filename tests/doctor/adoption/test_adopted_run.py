"""The whole way: a script that waits is diagnosed, its Loader is tried on its files, and the script trains from it."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from observed_runs import CASES, FEW_STEPS, headrace

from headrace.doctor.session.after_run import LoaderTrial
from headrace.doctor.session.storage import decode_session

ADOPTED = Path(__file__).parents[1] / "adopted"


def adopted(folder: Path, script: Path, data: Path, *arguments: str) -> tuple[LoaderTrial, str]:
    """Diagnose a copy of a script in a folder, and return the trial and what was printed."""
    shutil.copy(script, folder)
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    outputs = ("--json", "session.json", "--draft", "headrace_loader.py")
    call = ("doctor", "--steps", "20", *outputs, "--", sys.executable, script.name, str(data), *arguments)
    ran = headrace(*call, folder=folder, replay_steps=FEW_STEPS, tries_loader=True)
    assert ran.returncode == 0, ran.stderr
    assert {path: path.stat().st_mtime_ns for path in data.rglob("*")} == before
    trial = decode_session((folder / "session.json").read_bytes()).loader_trial
    assert trial is not None
    assert (trial.why, trial.detail) == ("measured", "")
    held = trial.files.get("MANIFEST", "no manifest")
    module = trial.module.replace(held, str(folder / "headrace_loader.parquet"))
    assert (folder / "headrace_loader.py").read_text() == module
    assert "Headrace's Loader" in ran.stdout
    return trial, ran.stderr


def take_loader(script: Path) -> None:
    """Let a script make its Loader by the module, in place of its only DataLoader."""
    text = script.read_text()
    (call,) = (
        one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Call) and "DataLoader" in ast.unparse(one.func)
    )
    made = ast.get_source_segment(text, call)
    (size,) = (ast.unparse(one.value) for one in call.keywords if one.arg == "batch_size")
    taken = text.replace(made, f"__import__('headrace_loader').make_dataloader(batch_size={size})")
    script.write_text(taken)


def trained(folder: Path, script: str, data: Path, *arguments: str) -> str:
    command = [sys.executable, script, str(data), *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=120).stdout


@pytest.mark.long
def test_a_script_trains_on_the_same_samples_with_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ADOPTED))
    from adopted_data import class_folder

    data = tmp_path / "data"
    class_folder(data, 20)
    trial, said = adopted(tmp_path, CASES / "class_photos.py", data)
    assert trial.degree == "exact", trial.reason
    assert "no part" in said
    before = trained(tmp_path, "class_photos.py", data, "--epochs", "2")
    take_loader(tmp_path / "class_photos.py")
    after = trained(tmp_path, "class_photos.py", data, "--epochs", "2")
    samples = [re.findall(r"epoch (\d): (\d) (\S+)", printed) for printed in (before, after)]
    assert len(samples[0]) == len(samples[1]) == 40
    assert [one[:2] for one in samples[0]] == [one[:2] for one in samples[1]]
    means = [[float(one[2]) for one in each] for each in samples]
    assert means[1] == pytest.approx(means[0], abs=0.02)  # resized by another filter, of the same pictures


@pytest.mark.long
@pytest.mark.parametrize(("name", "maker"), [("captions_csv", "captioned"), ("folder_v1", "class_folder")])
def test_public_scripts_train_with_modules(
    name: str, maker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("torchvision", "tokenizers", "transformers", "pandas"):
        pytest.importorskip(module, exc_type=ImportError)
    monkeypatch.syspath_prepend(str(ADOPTED))
    import adopted_data

    data = tmp_path / "data"
    getattr(adopted_data, maker)(data, 96)
    trial, _ = adopted(tmp_path, ADOPTED / f"{name}.py", data, "--workers", "1", "--steps", "100000")
    assert not [path for path, how in trial.verified.items() if how.startswith("different") and path in trial.covered]
    assert trial.degree in ("part", "exact")
    if trial.degree == "exact":
        take_loader(tmp_path / f"{name}.py")
        trained(tmp_path, f"{name}.py", data, "--steps", "20")


SHARDS = """
import glob, sys
import numpy as np
import torch
import webdataset as wds
from PIL import Image

def pixels(image):
    image = image.resize((96, 64), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255

tars = sorted(glob.glob(f"{sys.argv[1]}/*.tar"))
stages = wds.WebDataset(tars, shardshuffle=len(tars), empty_check=False).shuffle(100)
stages = stages.decode("pil").to_tuple("jpg", "cls").map_tuple(pixels, int).batched(4, partial=False).repeat(1000)
model = torch.nn.Linear(96 * 64 * 3, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for images, labels in wds.WebLoader(stages, batch_size=None, num_workers=1):
    loss = torch.nn.functional.cross_entropy(model(images.flatten(1)), torch.as_tensor(labels))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.long
def test_a_pipeline_of_tars_becomes_a_loader_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ADOPTED))
    from adopted_data import shards

    data, folder = tmp_path / "data", tmp_path / "run"
    shards(data, 64, 16)
    folder.mkdir()
    (tmp_path / "train.py").write_text(SHARDS)
    trial, said = adopted(folder, tmp_path / "train.py", data)
    assert trial.degree == "exact", trial.reason
    assert "no part" in said
    assert trial.verified == {"0": "same", "1": "same"}
    assert trial.files == {}
    assert "/train-{0000..0003}.tar" in trial.module
    assert [part.certainty for part in trial.parts if "100" in part.note] == ["differs"]
