"""Planted faults of evaluations are found in real runs; correct scripts raise no alarm."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from observed_runs import CASES, headrace
from PIL import Image
from probing import merged, run_probed

from headrace.doctor.explain.look import read_look
from headrace.doctor.faults import leaked_split, session_faults
from headrace.doctor.faults.process_faults import first_of_passes
from headrace.doctor.session.after_run import DataFault
from headrace.doctor.session.model import Session

START = (
    f"import sys\nsys.path.append({str(CASES)!r})\n"
    + """\
import random, sys
from pathlib import Path
import numpy as np, torch
from quick_optimizer import Descent
from PIL import Image
from torch.utils.data import DataLoader, Dataset

def pixels_of(path):
    return torch.from_numpy(np.array(Image.open(path).convert("RGB"))).float() / 255

class Classified(Dataset):
    def __init__(self, files):
        self.samples = [(str(file), number % 3) for number, file in enumerate(files)]
    def __len__(self):
        return len(self.samples)
    def __getitem__(self, index):
        path, label = self.samples[index]
        return self.changed(pixels_of(path)), label
    def changed(self, pixels):
        return pixels

def loader_of(dataset, **options):
    return DataLoader(dataset, **{"batch_size": 4, "num_workers": 2, **options})

def numbers_of(batch):
    return batch[0]

def fit(training, *evaluations, epochs=2, before=lambda: None):
    model = torch.nn.Linear(3, 1)
    optimizer = Descent(model.parameters(), 1e-6)
    for _ in range(epochs):
        for batch in training:
            optimizer.zero_grad()
            model(numbers_of(batch).flatten(1)[:, :3]).sum().backward()
            optimizer.step()
        for evaluation in evaluations:
            before()
            with torch.no_grad():
                for batch in evaluation:
                    model(numbers_of(batch).flatten(1)[:, :3])

DATA = Path(sys.argv[1])
images = sorted((DATA / "images").glob("*.png"))
"""
)
LOOK = """
from headrace.doctor.probe.look.value_look import look_at_values
look_at_values(training, sys.argv[2])
"""
SHUFFLED_TWICE = """
shuffled, again = random.Random(0).sample(images, 40), random.Random(1).sample(images, 40)
training = loader_of(Classified(shuffled[:32]), shuffle=True)
fit(training, loader_of(Classified(again[24:])))
"""
JITTER = """
class Cropped(Classified):
    def changed(self, pixels):
        top, left = np.random.randint(0, 8, 2)
        return pixels[top : top + 8, left : left + 8]
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    (made / "images").mkdir(parents=True)
    for number in range(40):
        pixels = np.random.default_rng(number).integers(0, 256, (16, 16, 3), np.uint8)
        Image.fromarray(pixels).save(made / f"images/{number:02}.png")
    return made


def session_of(script: str, data: Path, folder: Path) -> Session:
    path = folder / "train.py"
    path.write_text(START + script)
    ran = run_probed([sys.executable, str(path), str(data), str(folder / "look")], folder, observe=False)
    assert ran.returncode == 0, ran.stderr
    session = merged(folder)
    assert "hook-off" not in [note.code for note in session.notes]
    return session


def leaks(session: Session, folder: Path) -> list[DataFault]:
    """Return the leaks from the samples of the last training loader."""
    (trainer,) = session.trainers
    *_, last = first_of_passes(session)
    return list(leaked_split(session, trainer, last.pass_.loader, read_look(folder / "look")))


def test_an_evaluation_of_training_samples(data: Path, tmp_path: Path) -> None:
    session = session_of(SHUFFLED_TWICE + LOOK, data, tmp_path)
    assert session_faults(session) == []
    (leak,) = leaks(session, tmp_path)
    assert (leak.code, leak.certainty) == ("leaked-split", "certain")
    assert f"The evaluation at {tmp_path / 'train.py'}:" in leak.evidence


@pytest.mark.alone
@pytest.mark.long
def test_what_may_be_intended_is_reported_and_leaves_the_exit_status(data: Path, tmp_path: Path) -> None:
    script, saved = tmp_path / "train.py", tmp_path / "session.json"
    evaluated = "fit(loader_of(Cropped(images[:8]), shuffle=True), loader_of(Cropped(images[32:])), epochs=99)"
    script.write_text(START + JITTER + evaluated)
    command = ("check", "--json", str(saved), "--", sys.executable, str(script), str(data))
    ran = headrace(*command, tries_loader=True)
    assert ran.returncode == 0, ran.stderr
    assert [fault["code"] for fault in json.loads(saved.read_text())["faults"]] == ["augmented-evaluation"]
    assert "augmented-evaluation (unless intended)" in ran.stdout
