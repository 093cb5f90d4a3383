"""`headrace check` on scripts: the exit status, the report and the JSON."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from observed_runs import CASES, headrace
from PIL import Image

CASES_FIRST = f"import sys\nsys.path.append({str(CASES)!r})\n"
SCRIPT = (
    CASES_FIRST
    + """\
from pathlib import Path
import cv2, torch
from quick_optimizer import Descent
from torch.utils.data import DataLoader, Dataset

class Photos(Dataset):
    def __init__(self, folder):
        self.files = sorted(map(str, Path(folder).glob("*.png")))
        self.labels = [number // 30 for number in range(len(self.files))]

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        pixels = cv2.resize(cv2.imread(self.files[index]), (48, 48)){order}
        pixels = (pixels / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
        return torch.from_numpy(pixels.copy()).permute(2, 0, 1).float(), self.labels[index]

model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48 * 48 * 3, 2))
optimizer = Descent(model.parameters(), 1e-3)
for _ in range(50):
    for image, label in DataLoader(Photos(sys.argv[1]), batch_size=4, shuffle={shuffle}):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(image), label).backward()
        optimizer.step()
"""
)


@pytest.mark.parametrize(
    ("order", "shuffle", "status", "codes"),
    [
        pytest.param("", False, 101, ["channel-order", "class-order"], id="faulty"),
        pytest.param("[..., ::-1]", True, 0, [], id="correct", marks=pytest.mark.long),
    ],
)
def test_a_script_is_checked(order: str, shuffle: bool, status: int, codes: list[str], tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(60):
        coarse = np.random.default_rng(number).integers(0, 256, (12, 15, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((90, 72), Image.Resampling.BICUBIC).save(photos / f"{number:02}.png")
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("{order}", order).replace("{shuffle}", str(shuffle)))
    command = ("check", "--json", str(tmp_path / "session.json"), "--", sys.executable)
    ran = headrace(*command, str(script), str(photos), tries_loader=True)
    assert ran.returncode == status, ran.stderr
    assert sorted(fault["code"] for fault in json.loads((tmp_path / "session.json").read_text())["faults"]) == codes
    assert all(code in ran.stdout for code in codes)


ENDLESS = (
    CASES_FIRST
    + """\
import torch
from quick_optimizer import Descent
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(1, 1)
optimizer = Descent(model.parameters(), 1e-6)
batches = iter(DataLoader(TensorDataset(torch.arange(80.0).reshape(-1, 1)), 4, shuffle=True))
for _ in range(12):
    (values,) = next(batches)
    optimizer.zero_grad()
    model(values).mean().backward()
    optimizer.step()
"""
)


def test_a_script_that_fails_after_a_short_pass_runs_again_with_whole_ones(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ENDLESS)
    document = tmp_path / "session.json"
    ran = headrace("check", "--json", str(document), "--", sys.executable, str(tmp_path / "train.py"))
    check = json.loads(document.read_text())["check"]
    assert ran.returncode == 0, ran.stderr
    assert "it runs again with whole passes" in ran.stderr
    assert any(line.startswith("Whole passes") for line in check["unseen"])


def test_a_command_without_a_loader_is_not_called_right(tmp_path: Path) -> None:
    ran = headrace("check", "--html", str(tmp_path / "page.html"), "--", sys.executable, "-c", "pass")
    assert ran.returncode == 125
    assert ran.stdout.startswith("Nothing was looked at.")
    assert "Values of samples: none was looked at" in (tmp_path / "page.html").read_text()


def test_checkpoints_of_short_passes_stay_out_of_the_users_folder(tmp_path: Path) -> None:
    script = ENDLESS.replace("batches = iter(", "loader = (").replace("for _ in range(12):", "for _ in range(3):")
    script = script.replace("    (values,) = next(batches)\n", "  for (values,) in loader:\n")
    (tmp_path / "train.py").write_text(script + "  torch.save(model.state_dict(), sys.argv[1])\n")
    saved = tmp_path / "last.pt"
    ran = headrace("check", "--", sys.executable, str(tmp_path / "train.py"), str(saved))
    assert ran.returncode == 0, ran.stderr
    assert not saved.exists()


LOOP = """
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), 1e-6)
data = TensorDataset(torch.arange(80.0).reshape(-1, 1))
loader = DataLoader(data, 4, shuffle=True, num_workers=2, generator=torch.Generator().manual_seed(0))
form, checkpoint, *resumes = sys.argv[1:]
first = torch.load(checkpoint) if resumes else 0
for number, (values,) in enumerate(loader):
    if form == "right" and number < first:
        continue
    optimizer.zero_grad()
    model(values).mean().backward()
    optimizer.step()
    if number == 11 and not first:
        torch.save(number + 1, checkpoint)
"""

TRANSFORMERS = """
import sys
import torch
from transformers import Trainer, TrainingArguments

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 80

    def __getitem__(self, index):
        return {"x": torch.tensor([float(index)])}

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)

    def forward(self, x):
        return {"loss": self.linear(x).mean()}

form, folder, *resumes = sys.argv[1:]
options = TrainingArguments(
    folder, per_device_train_batch_size=4, max_steps=20, save_steps=12, learning_rate=1e-6, report_to=[], use_cpu=True,
    remove_unused_columns=False, ignore_data_skip=form == "anew",
)
Trainer(Model(), options, train_dataset=Numbers()).train(folder + "/checkpoint-12" if resumes else None)
"""
LIGHTNING = """
import sys
import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)

    def training_step(self, batch, number):
        return self.linear(batch[0]).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-6)

form, folder, *resumes = sys.argv[1:]
lightning.seed_everything(0)
saves = lightning.pytorch.callbacks.ModelCheckpoint(folder, "{step}", every_n_train_steps=12, save_top_k=-1)
trainer = lightning.Trainer(
    max_epochs=1, logger=False, callbacks=[saves], enable_progress_bar=False, accelerator="cpu"
)
loader = DataLoader(TensorDataset(torch.arange(80.0).reshape(-1, 1)), 4, shuffle=True)
trainer.fit(Model(), loader, ckpt_path=folder + "/step=12.ckpt" if resumes else None)
"""


@pytest.mark.parametrize(
    ("code", "form", "status"),
    [
        pytest.param(LOOP, "anew", 101, id="anew"),
        pytest.param(LOOP, "right", 0, id="right"),
        pytest.param(TRANSFORMERS, "anew", 101, id="transformers-anew"),
        pytest.param(TRANSFORMERS, "right", 0, id="transformers"),
        pytest.param(LIGHTNING, "anew", 101, id="lightning"),
    ],
)
@pytest.mark.long
def test_a_resume_is_checked(code: str, form: str, status: int, tmp_path: Path) -> None:
    script, document = tmp_path / "train.py", tmp_path / "session.json"
    script.write_text(code)
    command = [sys.executable, str(script), form, str(tmp_path / "last.pt")]
    again = shlex.join([*command, "--resume"])
    check = ("check", "resume", "--again", again, "--json", str(document), "--", *command)
    ran = headrace(*check, tries_loader=True)
    assert ran.returncode == status, ran.stderr
    faults = json.loads(document.read_text())["faults"]
    assert [fault["code"] for fault in faults] == ["repeated-after-resume"] * (status == 101)
    assert all("12 batches of a pass" in fault["evidence"] for fault in faults)
