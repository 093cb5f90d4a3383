"""The generated module: laid out as a formatter does, with nothing foreign but literals, never over other files."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import headrace as hr
from headrace.compare import Judgement
from headrace.doctor.adoption import LoaderRecipe, files_beside, module_text
from headrace.doctor.adoption.comparison import judged, script_loader
from headrace.doctor.adoption.recipe import write_files
from headrace.doctor.explain.look import read_look
from headrace.doctor.probe.look.value_look import look_at_values
from headrace.doctor.session.after_run import AdoptedPart
from headrace.errors import UsageError
from headrace.loader import LoaderDataLoader

HOSTILE = 'a"""b\'\n\\"; import os\u2028os.system("x") # \x1b[2J'


def recipe(**changes):
    given = {
        "fields": {
            "image": "hr.Image(dtype='float32', normalize=hr.IMAGENET, channels_last=False)",
            "label": "hr.Label()",
        },
        "output": "[batch['image'], batch['label']]",
        "view": "[hr.Resize(256), hr.CenterCrop(224), hr.RandomHorizontalFlip(0.5)]",
        "script": ("train.py", "--epochs", "1"),
        "batch_size": 64,
        "shuffle": True,
    }
    return LoaderRecipe(**(given | changes))


RECIPES = {
    "plain": recipe(),
    "data of an argument": recipe(script=("train.py", "--data=/data/a b"), columns={"path": ["/data/a b/1.jpg"]}),
    "all": recipe(
        augment="[hr.RandAugment(2, 9), hr.RandomErasing(0.25, scale=(0.02, 1 / 3), ratio=(0.3, 3.3), value='random')]",
        root="all.tar",
        degree="part",
        imports=("import math", "import numpy as np", "from pathlib import Path"),
        drop_last=True,
        reason="One part is a reading of the script, " * 5,
        parts=(AdoptedPart("depth", "fields", "hr.Depth()", "check", "a long note, " * 20),),
    ),
    "hostile": recipe(
        root=HOSTILE,
        script=(HOSTILE,),
        reason=HOSTILE,
        parts=tuple(
            AdoptedPart(HOSTILE, place, HOSTILE, certainty, HOSTILE)
            for certainty in ("check", "python", "differs")
            for place in ("fields", "view", "output", "loader")
        ),
    ),
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_formatter_leaves_it_as_it_is(name, tmp_path):
    path = tmp_path / "draft.py"
    path.write_text(module_text(RECIPES[name], {"MANIFEST": HOSTILE}))
    formats = [sys.executable, "-m", "ruff", "format", "--isolated", "--no-cache", "--diff", path]
    told = subprocess.run(formats, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout


def test_what_is_foreign_stays_literal_or_comment():
    tree = ast.parse(module_text(RECIPES["hostile"], {"MANIFEST": HOSTILE}))
    plain = ast.parse(module_text(recipe(root="all.tar"), {"MANIFEST": "manifest.parquet"}))

    def shape(node):
        return [type(each) for each in ast.walk(node) if not isinstance(each, ast.Constant | ast.List)]

    assert shape(tree) == shape(plain)
    constants = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    assert constants.count(HOSTILE) == 2  # MANIFEST and ROOT


def test_parts_to_check_are_named():
    text = module_text(RECIPES["all"], {})
    assert "# check: depth: a long note," in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("words", [("--data=DATA", "4"), ("DATA", "--epochs", "4"), ("--data", "DATA")])
def test_data_of_an_argument_are_those_of_that_argument(words, tmp_path, monkeypatch):
    """With the module, the script with another folder must not train on the samples of the diagnosed run."""
    paths = [f"{tmp_path}/train/{number}.png" for number in range(2)]
    for path in paths:
        (tmp_path / "train").mkdir(exist_ok=True)
        Image.new("RGB", (8, 8)).save(path)
    script = ("train.py", *(word.replace("DATA", f"{tmp_path}/train") for word in words))
    recipe = LoaderRecipe(fields={"image": "hr.Image()"}, columns={"image": paths}, script=script, batch_size=2)
    module = {"__name__": "headrace_loader"}
    exec(module_text(recipe, write_files(recipe, tmp_path)), module)
    monkeypatch.setattr("sys.argv", list(script))
    assert len(list(module["make_dataloader"]())) == 1
    monkeypatch.setattr("sys.argv", [word.replace(f"{tmp_path}/train", "/nonexistent") for word in script])
    with pytest.raises(ValueError, match="/nonexistent"):
        module["make_dataloader"]()


_COLUMNS = {"image__path": ["a.jpg", "b.jpg"], "label": [3, None]}
RECIPE = LoaderRecipe(columns=_COLUMNS, tokenizers={"TOKENIZER_0": '{"model": {}}'})


def drafted(folder: Path) -> tuple[str, dict[str, str]]:
    run = folder / "run"
    run.mkdir(exist_ok=True)
    files = write_files(RECIPE, run)
    return module_text(RECIPE, files), files


def test_a_module_opens_the_copies_beside_it(tmp_path: Path) -> None:
    text, files = drafted(tmp_path)
    for _ in range(2):
        beside = files_beside(text, files, tmp_path / "draft.py")
        assert f'MANIFEST = "{tmp_path / "draft.parquet"}"' in beside
        assert f'TOKENIZER_0 = "{tmp_path / "draft.tokenizer_0.json"}"' in beside
    assert pq.read_table(tmp_path / "draft.parquet").to_pydict() == dict(RECIPE.columns)
    assert (tmp_path / "draft.tokenizer_0.json").read_text() == RECIPE.tokenizers["TOKENIZER_0"]


@pytest.mark.parametrize("name", ["draft.parquet", "draft.tokenizer_0.json"])
def test_another_file_of_that_name_stays(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"mine")
    with pytest.raises(UsageError, match=name):
        files_beside(*drafted(tmp_path), tmp_path / "draft.py")
    assert (tmp_path / name).read_bytes() == b"mine"


def test_files_that_are_gone_are_said(tmp_path: Path) -> None:
    text, files = drafted(tmp_path)
    Path(files["MANIFEST"]).unlink()
    with pytest.raises(UsageError, match="run the command again"):
        files_beside(text, files, tmp_path / "draft.py")


class Photos(Dataset[Any]):
    """Pictures of noise, each changed in some way."""

    def __init__(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.change = change

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, Any]:
        image = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(index))
        return {"image": self.change(image), "label": index, "path": f"photos/{index}.jpg"}


def drawn(image: torch.Tensor) -> torch.Tensor:
    return image * torch.rand(1).add(1)


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


def compared(
    folder: Path,
    given: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.clone,
    **changes: Callable[[dict[str, Any]], Any],
) -> Judgement:
    """Compare with a Loader whose arrays are changed so."""

    def made(index: int) -> dict[str, Any]:
        usual = sample(index)
        return usual | {name: change(usual) for name, change in changes.items()}

    look_at_values(DataLoader(Photos(given), 4), str(folder / "look"))
    return judged(read_look(folder / "look"), lambda size, shuffle: MadeLoader(made), iter)


def test_the_same_samples_are_the_same(tmp_path: Path) -> None:
    found = compared(tmp_path, image=lambda one: one["image"] + 1e-4)
    assert (found.verdict, found.samples, list(found.compared)) == ("equal", (8, 8), ["image", "label", "path.0"])


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
        ("image", blurred),
        ("image", lambda one: one["image"][..., :16]),
        ("image", lambda one: one["image"] + 0.015 / 0.225 * 0.2),  # a mean of 0.47 for 0.485
        ("path", lambda one: [one["path"][0].encode()]),
        ("path", lambda one: ["another.jpg"]),
    ],
)
def test_what_differs_is_named(name: str, change: Callable[[dict[str, Any]], Any], tmp_path: Path) -> None:
    found = compared(tmp_path, **{name: change})
    assert found.verdict == "different"
    assert {one.leaf for one in found.differences} == {"path.0" if name == "path" else name}


@pytest.mark.parametrize(
    ("factor", "expected"), [(1.0, set()), (9.0, {"distribution"}), (0.0, {"augmentation", "values"})]
)
def test_few_samples_of_a_drawn_image_differ_by_their_range(factor: float, expected: set[str], tmp_path: Path) -> None:
    found = compared(tmp_path, drawn, image=lambda one: factor * one["image"] * torch.rand(1).add(1))
    assert {(one.code, one.leaf) for one in found.differences} <= {(code, "image") for code in expected}
    assert found.verdict == ("different" if expected else "not enough seen")
    assert [one.leaf for one in found.unseen] == ([] if expected else ["image"])


def test_a_missing_array_and_one_too_many_are_different(tmp_path: Path) -> None:
    found = compared(tmp_path, depth=lambda one: np.zeros((1, 4), np.float32))
    assert [(one.code, one.leaf) for one in found.differences] == [("leaves", "depth")]


def test_a_script_with_a_loader_as_a_dataloader_gives_its_batches(tmp_path, monkeypatch):
    """Not those of the Loader inside, whose structure is another; a pass without autograd is an evaluation."""
    (tmp_path / "train.py").write_text(
        "import torch, headrace as hr\n"
        "inner = hr.Loader({'label': [1, 2, 3, 4]}, {'label': hr.Label()}, batch_size=2)\n"
        "loader = inner.as_dataloader(lambda batches: ((batch['label'],) for batch in batches))\n"
        "with torch.no_grad():\n"
        "    assert len(list(loader)) == 2\n"
        "for labels, in loader:\n"
        "    pass\n"
    )
    monkeypatch.chdir(tmp_path)
    (first, _) = script_loader(["train.py"], (LoaderDataLoader, hr.Loader))
    assert [labels.tolist() for labels in first] == [[1, 2]]
