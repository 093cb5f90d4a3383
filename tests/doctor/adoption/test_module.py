"""The generated module: laid out as a formatter does, with nothing foreign but literals, never over other files."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image

from headrace.doctor.adoption import LoaderRecipe, files_beside, module_text
from headrace.doctor.adoption.module import write_files
from headrace.doctor.session.after_run import AdoptedPart
from headrace.errors import UsageError

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
    told = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--isolated", "--no-cache", "--diff", path],
        capture_output=True,
        text=True,
    )
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
    """After `--apply`, the script with another folder must not train on the samples of the diagnosed run."""
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


RECIPE = LoaderRecipe(
    columns={"image__path": ["a.jpg", "b.jpg"], "label": [3, None]}, tokenizers={"TOKENIZER_0": '{"model": {}}'}
)


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
