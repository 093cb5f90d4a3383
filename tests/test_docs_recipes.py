"""The examples of docs/recipes/README.md and of the page on a Dataset of one's own, run from top to bottom."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from docs_pages import DOCS, examples
from loader_data import encode, photograph

COUNTS = {"cat": 40, "dog": 24}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """With the folder that the pages name; file names end in numbers."""
    root = tmp_path_factory.mktemp("recipes")
    for label, (name, count) in enumerate(COUNTS.items()):
        (root / "train" / name).mkdir(parents=True)
        for number in range(count):
            image = photograph(100 * label + number, 120, 90)
            (root / "train" / name / f"{number}.jpg").write_bytes(encode(image, quality=90))
    return root


@pytest.fixture(scope="module")
def recipes(directory):
    """What the blocks have defined, one after the other; a block that does not run fails all tests."""
    names: dict[str, object] = {}
    steps = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        for example in examples("recipes/README.md"):
            exec(example, names)
            steps.append(dict(names))
    return names, steps


def of_block(recipes, word):
    """What was defined when the block with `word` had run."""
    (at,) = [at for at, text in enumerate(examples("recipes/README.md")) if word in text]
    return recipes[1][at]


def test_labels_by_a_rule(recipes):
    parity = of_block(recipes, "with_column")["parity"]
    assert parity.classes == ("even", "odd")
    assert parity.labels().tolist() == [int(Path(key).stem) % 2 for key in parity.keys]


def test_a_balanced_epoch_has_each_class_as_often(recipes):
    names = of_block(recipes, "balanced =")
    assert names["counts"].tolist() == list(COUNTS.values())
    drawn = np.bincount(np.concatenate([batch["label"] for batch in names["balanced"]]))
    assert drawn.sum() == 800
    assert abs(drawn[0] - 400) < 5 * np.sqrt(800 / 4)
    torch.testing.assert_close(names["weights"], torch.tensor([64 / 80, 64 / 48]))


def test_parts(recipes):
    names = of_block(recipes, "dogs =")
    assert len(names["dogs"]) == COUNTS["dog"]
    assert set(names["dogs"].labels().tolist()) == {1}
    assert (len(names["train"]) + len(names["val"]), len(names["first"])) == (64, 50)


def test_phases_and_figures(recipes):
    names = recipes[0]
    assert [(first, len(loader)) for first, loader in names["loaders"]] == [(0, 1), (2, 1)]
    assert [loader.epoch for _, loader in names["loaders"]] == [2, 4]
    assert json.loads(json.dumps(names["figures"]))["samples"] == sum(COUNTS.values())
    assert 0 <= names["waiting"] <= 1


def test_a_dataset_of_ones_own(directory, monkeypatch):
    monkeypatch.chdir(directory)
    names: dict[str, object] = {}
    for example in examples("drop-ins/README.md", "A Dataset that cannot become a Loader"):
        exec(example, names)
    assert names["anchors"].shape == names["positives"].shape == (64, 3, 224, 224)
    assert names["anchors"].dtype == torch.float32
    assert sorted(names["labels"].tolist()) == [0] * 40 + [1] * 24


def test_the_tests_that_a_page_names_are_there():
    """`docs/trust.md` says which test holds which promise."""
    tests = Path(__file__).parent
    named = re.findall(r"`(?:tests/)?([\w/*]+\.py|(?!tests/)[\w/]+/)`", (DOCS / "trust.md").read_text())
    assert len(named) > 40
    assert [name for name in named if not list(tests.rglob(name))] == []
