"""Kinds of datasets: torchvision's own, parts and sums of others, arrays in memory, and steps of the script's own."""

import runpy
import sys

import numpy as np
import pytest
import torch
from made_recipes import CENTER, TENSOR, described_recipe, differences, image_folder, known, loaded, recipe_of
from PIL import Image
from recorded_scripts import FOLDER, recorded, script_text
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from headrace.doctor.adoption import adopt, module_text
from headrace.doctor.adoption.script_functions import draws_numbers
from headrace.doctor.edits import ScriptSource, ScriptSources
from headrace.doctor.measure import Join, TrainerView

LABELLED = """
class Labelled(Dataset):
    def __init__(self, path, root):
        self.root, self.path = root, path
        with open(path) as file:
            self.rows = list(csv.DictReader(file))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        return pixels_of(Image.open(os.path.join(self.root, row["file"])).convert("RGB")), int(row["label"])


def halves(dataset, seed=11):
    return torch.utils.data.random_split(dataset, [len(dataset) - 3, 3], generator=torch.Generator().manual_seed(seed))
"""
STEPS = """
LEVEL = 0.25


def shifted(tensor, by=0.0):
    return torch.roll(tensor, 3, dims=-1) + by


def brighter(tensor):
    return shifted(tensor, LEVEL).exp()


class Power:
    def __init__(self, exponent):
        self.exponent = exponent

    def __call__(self, tensor):
        return tensor.abs().pow(self.exponent)


class Photos(Dataset):
    def __init__(self, root, steps):
        self.steps, self.classes = steps, sorted(os.listdir(root))
        self.samples = [
            (os.path.join(root, name, file), label)
            for label, name in enumerate(self.classes)
            for file in sorted(os.listdir(os.path.join(root, name)))
        ]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        image = pixels_of(Image.open(path).convert("RGB"))
        image = CALL
        return image, label
"""


@pytest.fixture
def folder(tmp_path):
    for number in range(12):
        path = tmp_path / "data" / "ab"[number % 2] / f"{number:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (6, 8, 3), np.uint8)
        Image.fromarray(pixels).save(path)
    for name, chosen in (("one", range(8)), ("two", range(8, 12))):
        rows = [f"{'ab'[number % 2]}/{number:02d}.png,{number}" for number in chosen]
        (tmp_path / f"{name}.csv").write_text("\n".join(["file,label", *rows]))
    return tmp_path / "data"


def labelled(folder, tmp_path, *names):
    path = tmp_path / "labelled_script.py"
    script = loaded(LABELLED, path)
    return script, path, [script.Labelled(str(tmp_path / f"{name}.csv"), str(folder)) for name in names]


def test_what_random_split_chose_is_drawn_again(folder, tmp_path):
    script, path, (dataset,) = labelled(folder, tmp_path, "one")
    for part in script.halves(dataset):
        recipe = recipe_of(part, path)
        assert (recipe.degree, recipe.chosen) == ("exact", "INDICES")
        assert differences(recipe, part) == {"0": pytest.approx(0, abs=1e-5), "1": 0}


def test_indices_that_nothing_tells_are_said(folder, tmp_path):
    _, path, (dataset,) = labelled(folder, tmp_path, "one")
    recipe = recipe_of(Subset(dataset, torch.randperm(8).tolist() * 20), path)
    assert recipe.degree == "draft"
    assert recipe.unsure[0].part == "Subset"


def test_datasets_one_behind_the_other_are_opened_together(folder, tmp_path):
    _, path, parts = labelled(folder, tmp_path, "one", "two")
    whole = ConcatDataset(parts)
    recipe = recipe_of(whole, path)
    assert recipe.degree == "exact"
    assert differences(recipe, whole) == {"0": pytest.approx(0, abs=1e-5), "1": 0}


def test_different_datasets_are_no_single_one():
    both = known(
        "torch.utils.data.dataset.ConcatDataset", datasets=[image_folder("a", TENSOR), image_folder("b", CENTER)]
    )
    recipe = described_recipe(both)
    assert recipe.degree == "no"
    assert "hr.mix" in recipe.reason


def test_tensors_in_memory_are_taken_by_whole_batches():
    recipe = recipe_of(TensorDataset(torch.zeros(30, 3, 8, 8), torch.zeros(30)), batch=[torch.zeros(2, 3, 8, 8)])
    assert recipe.degree == "no"
    assert "float32[30, 3, 8, 8]" in recipe.reason
    assert "one index" in recipe.reason


def cifar(name="cifar.CIFAR10", count=50_000, **changes):
    data = {"array": "numpy", "shape": [count, 32, 32, 3], "dtype": "uint8"}
    given = {"root": "cache", "train": True, "data": data, "targets": {"list": count, "first": [6, 9, 9]}, **changes}
    return known(f"torchvision.datasets.{name}", **given, transform=TENSOR, target_transform=None)


def test_arrays_of_torchvision_become_files_in_memory(monkeypatch):
    recipe = described_recipe(cifar(), batch=None)
    assert recipe.degree == "exact"
    pixels = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), np.uint8)
    made = type("CIFAR10", (), {"__init__": lambda self, root, train: None, "data": pixels, "targets": [3, 1, 0, 2, 1]})
    for name in ("torchvision", "torchvision.datasets"):
        monkeypatch.setitem(sys.modules, name, type(sys)(name))
    monkeypatch.setattr(sys.modules["torchvision.datasets"], "CIFAR10", made, raising=False)
    names = {"__name__": "draft"}
    exec(module_text(recipe), names)
    (batch,) = names["batches"](names["make_loader"](5, shuffle=False))
    np.testing.assert_allclose(batch[0].permute(0, 2, 3, 1).numpy() * 255, pixels, atol=1e-3)
    assert batch[1].tolist() == [3, 1, 0, 2, 1]


def test_an_array_that_the_script_has_cut_is_to_be_checked():
    assert described_recipe(cifar(count=5_000)).degree == "draft"


def test_boxes_in_xml_files_are_no_source():
    recipe = described_recipe(known("torchvision.datasets.voc.VOCDetection", images=["a/b/c.jpg"], transforms=None))
    assert recipe.degree == "no"
    assert "COCO" in recipe.reason


@pytest.mark.parametrize(
    ("call", "names"),
    [
        ("shifted(image, by=0.5)", ["shifted", "mapped"]),
        ("brighter(image)", ["LEVEL = 0.25\n\n\ndef shifted", "mapped"]),
        ("self.steps(image)", ["class Power:\n    def __init__", "mapped"]),
    ],
)
def test_steps_of_the_scripts_own_go_into_map(folder, tmp_path, call, names):
    path = tmp_path / "steps_script.py"
    script = loaded(STEPS.replace("CALL", call), path)
    dataset = script.Photos(str(folder), script.Power(2.0))
    recipe = recipe_of(dataset, path)
    assert (recipe.degree, recipe.map) == ("exact", "mapped")
    assert differences(recipe, dataset) == {"0": pytest.approx(0, abs=1e-4), "1": 0}


@pytest.mark.parametrize(("guard", "degree"), [("\nif __name__ == '__main__':\n    pass\n", "exact"), ("", "draft")])
def test_code_that_cannot_be_copied_is_imported_where_that_runs_nothing(folder, tmp_path, guard, degree):
    path = tmp_path / "imported_script.py"
    text = STEPS.replace("LEVEL = 0.25", "LEVEL = float('0.25')").replace("CALL", "brighter(image)")
    dataset = loaded(text + guard, path).Photos(str(folder), None)
    recipe = recipe_of(dataset, path)
    assert recipe.degree == degree
    assert ("from imported_script import brighter" in recipe.imports) == (degree == "exact")
    if degree == "exact":
        assert differences(recipe, dataset)["0"] == pytest.approx(0, abs=1e-4)


def recorded_recipe(name):
    session = recorded(name)
    sources = ScriptSources({f"/project/{name}.py": script_text(name)}.get)
    return adopt(session, TrainerView.of(session, session.trainers[0], Join(session)), sources).recipe


@pytest.mark.parametrize("name", ["voc_segmentation", "arrays_memory"])
def test_recorded_scripts_are_known_exactly(name):
    recipe = recorded_recipe(name)
    assert (recipe.degree, recipe.reason) == ("exact", "")
    module_text(recipe)


def test_recorded_steps_that_draw_are_to_be_checked():
    recipe = recorded_recipe("own_steps")
    assert [(part.part, part.becomes) for part in recipe.unsure] == [
        ("cutout", "map: cutout"),
        ("AddGaussianNoise", "map: AddGaussianNoise"),
    ]
    assert recipe.degree == "draft"
    assert (recipe.expected.least, recipe.expected.most) == (160, 160)
    module_text(recipe)


@pytest.mark.parametrize(
    ("line", "is_drawn"),
    [
        ("return tensor + torch.randn_like(tensor)", True),
        ("return tensor + torch.empty(3).normal_()", True),
        ("return tensor * np.random.uniform(0.5, 1.5)", True),
        ("return tensor if coin() else -tensor", True),
        ("return F.dropout(tensor, 0.1)", True),
        ("return rng.permutation(tensor)", True),
        ("return tensor.float().mean(0, keepdim=True)", False),
        ("return fixed(tensor)", False),
    ],
)
def test_code_that_draws_is_known_by_what_it_calls(line, is_drawn):
    text = f"""
import random, torch
import numpy as np
from torch.nn import functional as F
rng = np.random.default_rng(0)
def coin():
    return random.random() < 0.5
def fixed(tensor):
    return tensor.flip(0)
def step(tensor):
    {line}
"""
    assert draws_numbers(ScriptSource("/project/steps.py", text), "step") == is_drawn


def test_arithmetic_with_drawn_numbers_is_no_normalisation(folder, tmp_path):
    path = tmp_path / "gain_script.py"
    text = STEPS.replace("CALL", "image * random.uniform(0.8, 1.2)")
    recipe = recipe_of(loaded(text, path).Photos(str(folder), None), path)
    assert recipe.degree == "draft"
    (part,) = recipe.unsure
    assert (part.part, part.certainty) == ("image * random.uniform(0.8, 1.2)", "python")


def test_vocs_split_is_read_as_torchvision_does(tmp_path):
    runpy.run_path(str(FOLDER / "adopted_data.py"))["voc"](tmp_path / "data", 3)
    recipe = recorded_recipe("voc_segmentation")
    text = module_text(recipe).replace("/data/VOCdevkit", str(tmp_path / "data" / "VOCdevkit"))
    names = {"__name__": "draft"}
    exec(text, names)
    batch = next(iter(names["batches"](names["make_loader"](2, shuffle=False))))
    assert [list(one.shape) for one in batch] == [[2, 3, 256, 256], [2, 256, 256]]
    mask = Image.open(tmp_path / "data/VOCdevkit/VOC2012/SegmentationClass/2012_000001.png")
    assert set(batch[1][0].unique().tolist()) <= set(np.unique(mask).tolist())


FRAMES = """
import pandas as pd


class Frames(Dataset):
    def __init__(self, path, root):
        self.path, self.root = path, root
        self.df = pd.read_parquet(path)CHOICE

    def __len__(self):
        return len(self.df)

    def __getitem__(self, index):
        ROW
        return pixels_of(image), label
"""
ROWS = {
    "rows": """row = self.df.iloc[index]
        image, label = Image.open(os.path.join(self.root, row["file"])).convert("RGB"), int(row.label)""",
    "cells": """file = self.df.loc[index, "file"]
        image, label = Image.open(os.path.join(self.root, file)).convert("RGB"), self.df["label"].iloc[index]""",
    "bytes": """row = self.df.iloc[index]
        image, label = Image.open(io.BytesIO(row["picture"])).convert("RGB"), int(row["label"])""",
}


@pytest.mark.parametrize("rows", ROWS)
def test_a_parquet_file_that_pandas_reads(folder, tmp_path, rows):
    import pandas as pd

    files = sorted(file.relative_to(folder) for file in folder.rglob("*.png"))
    table = {"file": [str(one) for one in files], "label": range(12)}
    table["picture"] = [(folder / one).read_bytes() for one in files]
    pd.DataFrame(table).to_parquet(tmp_path / "list.parquet")
    path = tmp_path / "frames_script.py"
    text = FRAMES.replace("ROW", ROWS[rows])
    dataset = loaded(text.replace("CHOICE", ""), path).Frames(str(tmp_path / "list.parquet"), str(folder))
    recipe = recipe_of(dataset, path)
    assert recipe.degree == "exact"
    assert differences(recipe, dataset) == {"0": pytest.approx(0, abs=1e-5), "1": 0}
    chosen = loaded(text.replace("CHOICE", ".query('label > 3')"), path).Frames(dataset.path, str(folder))
    assert "holds 8 rows, the file 12" in recipe_of(chosen, path, batch=[torch.zeros(2, 3, 6, 8)]).unsure[0].note


def test_a_stream_of_the_scripts_own_is_named_with_its_line(tmp_path):
    path = tmp_path / "stream_script.py"
    body = "    def __iter__(self):\n        yield torch.zeros(3, 8, 8), 1\n"
    text = f"class Stream(torch.utils.data.IterableDataset):\n{body}"
    recipe = recipe_of(loaded(text, path).Stream(), path, batch=[torch.zeros(2, 3, 8, 8), torch.ones(2)])
    assert recipe.degree == "no"
    line = path.read_text().split("\n").index("    def __iter__(self):") + 1
    assert f"Stream.__iter__ (stream_script.py:{line})" in recipe.reason
