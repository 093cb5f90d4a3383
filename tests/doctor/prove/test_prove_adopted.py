"""A proof of the remedy `loader`: a real run of a script, with Headrace's Loader in place of its DataLoader."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from observed_runs import CASES
from PIL import Image

from headrace.doctor.prove.baseline import DIGESTS, compare_adopted
from headrace.doctor.prove.trial import Trial, TrialRequest, attempt
from headrace.doctor.session import session_folder

SCRIPT = """
import os, sys
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

sys.path.append(sys.argv[2])
from quick_optimizer import Descent

class Folder(Dataset):
    def __init__(self, root):
        self.files = [(os.path.join(root, name, file), label) for label, name in enumerate(sorted(os.listdir(root)))
                      for file in sorted(os.listdir(os.path.join(root, name)))]
    def __len__(self):
        return len(self.files)
    def __getitem__(self, index):
        path, label = self.files[index]
        image = Image.open(path).convert("RGB").resize((16, 16))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1), label

loader = DataLoader(Folder(sys.argv[1]), 4, shuffle=True)
model = torch.nn.Linear(768, 2)
optimizer = Descent(model.parameters(), 1e-6)
while True:
    for images, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(images.flatten(1).float()), labels)
        loss.backward()
        optimizer.step()
"""
MODULE = """
import headrace as hr

def make_loader(batch_size=4):
    fields = {{"image": hr.Image(), "label": hr.Label()}}
    view = {view}
    return hr.Loader({folder!r}, fields, view=view, batch_size=batch_size, shuffle=True)

def batches(loader):
    for batch in loader:
        yield batch["image"], batch["label"]
"""


@pytest.fixture
def script(tmp_path: Path) -> list[str]:
    """A training on twelve JPEGs of two classes."""
    pixels = np.random.default_rng(0).integers(0, 256, (12, 24, 32, 3), np.uint8)
    for number in range(12):
        path = tmp_path / "data" / "ab"[number % 2] / f"{number:02d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[number]).save(path)
    (tmp_path / "train.py").write_text(SCRIPT)
    return [sys.executable, str(tmp_path / "train.py"), str(tmp_path / "data"), str(CASES)]


def tried(command: list[str], module: str | None) -> Trial:
    changes = {} if module is None else {"loader": {"module": module, "loaders": [0]}}
    with session_folder(digests=DIGESTS) as folder:
        return attempt(command, folder.settings, TrialRequest(changes, 10, 120.0))


@pytest.mark.long
def test_it_trains_on_the_same_samples_in_another_order(script: list[str]) -> None:
    before = sorted(Path(script[1]).parent.rglob("*"))
    found = tried(script, MODULE.format(folder=script[2], view="hr.Resize((16, 16))"))
    assert (found.why, found.detail) == ("measured", "")
    assert len(found.steps) == 10
    assert compare_adopted(tried(script, None).samples, found.samples) == "alike"
    assert sorted(Path(script[1]).parent.rglob("*")) == before


@pytest.mark.long
def test_samples_of_another_shape_break_the_run_or_are_found_out(script: list[str]) -> None:
    found = tried(script, MODULE.format(folder=script[2], view="hr.Resize((8, 8))"))
    assert found.why == "broke"
    assert "768" in found.detail
    usual = MODULE.format(folder=script[2], view="hr.Resize((16, 16))")
    others = tried(script, usual.replace('yield batch["image"], ', 'yield batch["image"].float(), '))
    assert compare_adopted(tried(script, None).samples, others.samples) == "different"


@pytest.mark.long
def test_a_module_that_fails_is_not_applied(script: list[str]) -> None:
    found = tried(script, "raise ValueError('no')")
    assert (found.why, found.steps) == ("not applied", [])
    assert "ValueError: no" in found.detail
