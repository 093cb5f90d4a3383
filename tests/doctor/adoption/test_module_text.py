"""The generated module: laid out as a formatter does, and nothing foreign in it but literals and comments."""

import ast
import subprocess
import sys

import pytest

from headrace.doctor.adoption import LoaderRecipe, RecipePart, module_text

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
        "dataset": "torchvision.datasets.folder.ImageFolder",
        "batch_size": 64,
        "shuffle": True,
    }
    return LoaderRecipe(**(given | changes))


RECIPES = {
    "plain": recipe(),
    "all": recipe(
        augment="[hr.RandAugment(2, 9), hr.RandomErasing(0.25, scale=(0.02, 1 / 3), ratio=(0.3, 3.3), value='random')]",
        root="all.tar",
        degree="part",
        imports=("import math", "import numpy as np", "from pathlib import Path"),
        drop_last=True,
        reason="One part is a reading of the script, " * 5,
        parts=(RecipePart("depth", "hr.Depth()", "check", "a long note, " * 20),),
    ),
    "hostile": recipe(
        root=HOSTILE,
        script=(HOSTILE,),
        dataset=HOSTILE,
        reason=HOSTILE,
        parts=tuple(
            RecipePart(HOSTILE, HOSTILE, certainty, HOSTILE, argument)
            for certainty in ("check", "python", "differs")
            for argument in ("fields", "view", "output", "loader")
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
    assert constants.count(HOSTILE) == 4  # MANIFEST, ROOT, SCRIPT and dataset=


def test_parts_to_check_are_named():
    text = module_text(RECIPES["all"], {})
    assert "# check: depth: a long note," in text
    assert max(map(len, text.splitlines())) <= 100
