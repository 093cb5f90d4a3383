"""Runs with each remedy injected, the Loader among them: what was applied, and that samples stay what they are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_sessions import UNASKED
from observed_runs import CASES, python, torchrun
from PIL import Image

from headrace.doctor.probe.settings import ProbeSettings, boot_id
from headrace.doctor.prove.trial import DIGESTS, Trial, TrialRequest, are_equal, attempt, compare, compare_adopted
from headrace.doctor.session import session_folder

STEPS = 20
LIMIT_S = 120.0
TWO_WORKERS = {"loaders": {"0": {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 3}}}


def like(folder: Path, warmup: int = 12) -> ProbeSettings:
    """Return the settings of a measured run with this warm-up."""
    return ProbeSettings(str(folder), 0, 0, boot_id(), warmup=warmup)


class Script:
    """Runs `proved.py` with changes, into folders of its own."""

    def __init__(self, folder: Path, tar: Path) -> None:
        self.folder = folder
        self.tar = tar

    def run(self, changes: dict[str, Any], *arguments: str, most_s: float = LIMIT_S) -> Trial:
        command = python("proved.py", self.tar, *arguments)
        return attempt(command, like(self.folder), TrialRequest(changes, STEPS, most_s))


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory, photo_tar: Path) -> Script:
    return Script(tmp_path_factory.mktemp("proofs"), photo_tar)


@pytest.fixture(scope="module")
def plain(script: Script) -> Trial:
    return script.run({})


def test_without_changes_the_samples_are_those_of_the_run_before(script: Script, plain: Trial) -> None:
    assert plain.why == "measured", plain.detail
    assert len(plain.steps) == STEPS
    assert len(plain.samples.by_rank[0]) == 12
    assert all(digest.keys is not None for digest in plain.samples.by_rank[0])
    assert not plain.samples.draws


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"indexed_tar": True, **TWO_WORKERS}, "num_workers 1 -> 2, prefetch_factor 2 -> 3, persistent_workers False"),
        pytest.param(
            {"loaders": {"0": {"multiprocessing_context": "spawn"}}},
            "multiprocessing_context -> spawn",
            marks=pytest.mark.long,
        ),
    ],
    ids=["together", "start-method"],
)
def test_a_change_applies_and_leaves_samples(script: Script, plain: Trial, changes: dict[str, Any], said: str) -> None:
    trial = script.run(changes)
    assert trial.why == "measured", trial.detail
    assert said in trial.detail
    assert len(trial.steps) == STEPS
    assert compare(plain.samples, trial.samples, UNASKED) == "same"


@pytest.mark.long
@pytest.mark.parametrize(
    ("loader", "arguments"),
    [(0, {"persistent_workers": True}), (7, {"num_workers": 2})],
    ids=["it has no workers", "there is none"],
)
def test_what_a_loader_cannot_have_is_not_applied(script: Script, loader: int, arguments: dict[str, Any]) -> None:
    trial = script.run({"loaders": {str(loader): arguments}}, "0")
    assert (trial.why, trial.detail.partition(":")[0]) == ("not applied", "loaders")
    assert loader or "persistent_workers" in trial.detail


def test_a_change_that_nobody_knows_is_not_tried(script: Script) -> None:
    trial = script.run({"overclocking": True})
    assert (trial.why, trial.duration_us) == ("not applied", 0)
    assert trial.detail.endswith(" overclocking")


@pytest.mark.long
def test_draws_are_seen_and_other_draws_cannot_be_compared(script: Script) -> None:
    """Seeded, so that the run itself repeats; with another number of workers each sample draws what another drew."""
    before, again = script.run({}, "--augment"), script.run({}, "--augment")
    assert before.samples.draws
    assert are_equal(before.samples, again.samples)
    after = script.run(TWO_WORKERS, "--augment")
    assert compare(before.samples, after.samples, UNASKED) is None


@pytest.mark.long
def test_every_rank_gets_the_same_changes(script: Script) -> None:
    command = torchrun(2, "ranks.py", "--steps", "60")
    requests = (TrialRequest(one, STEPS, LIMIT_S) for one in ({}, {"loaders": {"0": {"num_workers": 1}}}))
    before, after = (attempt(command, like(script.folder, warmup=3), request) for request in requests)
    assert (before.why, after.why) == ("measured", "measured"), after.detail
    assert len(after.steps) == STEPS
    assert sorted(after.samples.by_rank) == [0, 1]
    assert compare(before.samples, after.samples, UNASKED) == "same"


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
def adopted(tmp_path: Path) -> list[str]:
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
def test_it_trains_on_the_same_samples_in_another_order(adopted: list[str]) -> None:
    before = sorted(Path(adopted[1]).parent.rglob("*"))
    found = tried(adopted, MODULE.format(folder=adopted[2], view="hr.Resize((16, 16))"))
    assert (found.why, found.detail) == ("measured", "")
    assert len(found.steps) == 10
    assert compare_adopted(tried(adopted, None).samples, found.samples) == "alike"
    assert sorted(Path(adopted[1]).parent.rglob("*")) == before


@pytest.mark.long
def test_samples_of_another_shape_break_the_run_or_are_found_out(adopted: list[str]) -> None:
    found = tried(adopted, MODULE.format(folder=adopted[2], view="hr.Resize((8, 8))"))
    assert found.why == "broke"
    assert "768" in found.detail
    usual = MODULE.format(folder=adopted[2], view="hr.Resize((16, 16))")
    others = tried(adopted, usual.replace('yield batch["image"], ', 'yield batch["image"].float(), '))
    assert compare_adopted(tried(adopted, None).samples, others.samples) == "different"


@pytest.mark.long
def test_a_module_that_fails_is_not_applied(adopted: list[str]) -> None:
    found = tried(adopted, "raise ValueError('no')")
    assert (found.why, found.steps) == ("not applied", [])
    assert "ValueError: no" in found.detail
