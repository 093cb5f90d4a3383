"""The verdict of `python draft.py`: equal, different and where, or not enough seen."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from processes import source_paths

from headrace.compare import Judgement
from headrace.doctor.adoption import compare_with_script

SCRIPT = """
import torch
from torch.utils.data import DataLoader, Dataset

class Photos(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        image = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(index))
        return {"image": IMAGE, "label": index, "path": f"photos/{index}.jpg"}

for batch in DataLoader(Photos(), 4):
    raise SystemExit("it trains")
"""
DRAWN = "image * torch.rand(1).add(1)"


@pytest.fixture(autouse=True)
def folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare in a folder in which nothing else is measured, since it is left as it was."""
    monkeypatch.chdir(tmp_path)


class MadeLoader:
    """Samples by their index, as `batches` yields them."""

    def __init__(self, sample: Callable[[int], dict[str, Any]]) -> None:
        self.sample, self.step = sample, 0

    def seek(self, epoch: int, step: int) -> None:
        self.step = step

    def __iter__(self) -> Iterator[dict[str, Any]]:
        yield self.sample(self.step)


def sample(index: int, **changes: Any) -> dict[str, Any]:
    image = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(index))[None]
    return {"image": image, "label": torch.tensor([index]), "path": [f"photos/{index}.jpg"]} | changes


def compared(folder: Path, given: str = "image", **changes: Callable[[dict[str, Any]], Any]) -> Judgement:
    """Compare with a Loader whose arrays are changed so."""
    script = folder / "train.py"
    script.write_text(SCRIPT.replace("IMAGE", given))

    def made(index: int) -> dict[str, Any]:
        usual = sample(index)
        return usual | {name: change(usual) for name, change in changes.items()}

    return compare_with_script(lambda size, shuffle: MadeLoader(made), iter, [str(script)])


def test_the_same_samples_are_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = compared(tmp_path, image=lambda one: one["image"] + 1e-4)
    assert (found.verdict, found.samples, list(found.compared)) == ("equal", (8, 8), ["image", "label", "path.0"])
    assert capsys.readouterr().out.splitlines()[0] == "equal"


def blurred(one: dict[str, Any]) -> torch.Tensor:
    """Return a picture of the same size, of which a step of resizing was left out."""
    small = torch.nn.functional.avg_pool2d(one["image"], 2)
    return torch.nn.functional.interpolate(small, scale_factor=2)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("label", lambda one: one["label"] + 88),
        ("label", lambda one: one["label"].float()),
        ("label", lambda one: None),
        ("image", blurred),
        ("image", lambda one: one["image"][..., :16]),
        ("image", lambda one: one["image"] * 255),
        ("image", lambda one: one["image"] + 0.015 / 0.225 * 0.2),  # a mean of 0.47 for 0.485
        ("path", lambda one: [one["path"][0].encode()]),
        ("path", lambda one: ["another.jpg"]),
    ],
)
def test_what_differs_is_named(
    name: str, change: Callable[[dict[str, Any]], Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = compared(tmp_path, **{name: change})
    assert found.verdict == "different"
    assert {one.leaf for one in found.differences} == {"path.0" if name == "path" else name}
    assert capsys.readouterr().out.splitlines()[0] == "different"


@pytest.mark.parametrize(
    ("factor", "expected"), [(1.0, set()), (9.0, {"distribution"}), (0.0, {"augmentation", "values"})]
)
def test_few_samples_of_a_drawn_image_differ_by_their_range(factor: float, expected: set[str], tmp_path: Path) -> None:
    found = compared(tmp_path, DRAWN, image=lambda one: factor * one["image"] * torch.rand(1).add(1))
    assert {(one.code, one.leaf) for one in found.differences} <= {(code, "image") for code in expected}
    assert found.verdict == ("different" if expected else "not enough seen")
    assert [one.leaf for one in found.unseen] == ([] if expected else ["image"])


def test_a_missing_array_and_one_too_many_are_different(tmp_path: Path) -> None:
    found = compared(tmp_path, depth=lambda one: np.zeros((1, 4), np.float32))
    assert [(one.code, one.leaf) for one in found.differences] == [("leaves", "depth")]


TRACKED = """
import os
import wandb
from torch.utils.tensorboard import SummaryWriter

os.makedirs("outputs/run")
open("outputs/run/config.yaml", "w").close()
open("log.txt", "a").write("begun again")
writer = SummaryWriter()
writer.add_scalar("loss", 1.0, 0)
wandb.init(project="photos")
wandb.log({"loss": 1.0})
"""


@pytest.mark.long  # test_hands_off_runs.py has trackers that stay offline, and files that are put back
def test_a_script_leaves_nothing_behind_and_its_trackers_stay_offline(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRACKED + SCRIPT.replace("IMAGE", "image"))
    (tmp_path / "log.txt").write_text("begun")
    (tmp_path / "draft.py").write_text(DRAFT)
    before = {path.name for path in tmp_path.iterdir()}
    draft = [sys.executable, "-B", "draft.py"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *source_paths()])}
    ran = subprocess.run(draft, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("equal")
    assert "Traceback" not in ran.stderr
    assert {path.name for path in tmp_path.iterdir()} == before
    assert (tmp_path / "log.txt").read_text() == "begun"


DRAFT = """
from test_comparison import MadeLoader, sample

from headrace.doctor.adoption import compare_with_script

compare_with_script(lambda size, shuffle: MadeLoader(sample), iter, ["train.py"])
"""
