"""Kinds of datasets: torchvision's own, parts and sums of others, arrays in memory, and steps of the script's own."""

import json
import runpy
import sys

import numpy as np
import pyarrow as pa
import pytest
import torch
from made_recipes import CENTER, TENSOR, described_recipe, differences, image_folder, known, loaded, paired, recipe_of
from PIL import Image
from pyarrow import parquet
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


LISTED = (
    paired("Listed", "png").replace("sorted(name[:-4] for name in", "list(name[:-4] for name in")
    + """
        return pixels_of(image), torch.from_numpy(np.array(mask)).long()
"""
)


def test_a_split_of_files_in_the_order_of_listdir_is_refused(tmp_path):
    """Drawn again over sorted files, it trained on 36 of 40 images of the validation."""
    for name, mode in (("images", "RGB"), ("masks", "L")):
        (tmp_path / name).mkdir()
        for number in range(40):
            Image.new(mode, (8, 8), number).save(tmp_path / name / f"{number}.png")
    path = tmp_path / "listed_script.py"
    dataset = loaded(LISTED, path).Listed(str(tmp_path))
    assert recipe_of(dataset, path).degree != "no"
    generator = torch.Generator().manual_seed(0)
    for part in torch.utils.data.random_split(dataset, [30, 10], generator=generator):
        recipe = recipe_of(part, path)
        assert recipe.degree == "no"
        assert "os.listdir" in recipe.reason


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
    given = {"root": "cache", "train": True, "data": data, "targets": {"list": count, "first": [6, 9, 9]}} | changes
    return known(f"torchvision.datasets.{name}", **given, transform=TENSOR, target_transform=None)


@pytest.fixture
def torchvision_class(monkeypatch):
    """Put a class in place of one of torchvision's datasets, which this Python may lack: it has these attributes."""

    def put(name, **attributes):
        given = {}
        made = type(name, (), {"__init__": lambda self, root, **chosen: given.update(chosen, root=root), **attributes})
        for module in ("torchvision", "torchvision.datasets"):
            monkeypatch.setitem(sys.modules, module, type(sys)(module))
        monkeypatch.setattr(sys.modules["torchvision.datasets"], name, made, raising=False)
        return given

    return put


def first_batch(recipe, size):
    names = {"__name__": "draft"}
    exec(module_text(recipe), names)
    return next(iter(names["batches"](names["make_loader"](size, shuffle=False))))


@pytest.mark.parametrize(
    ("name", "labels", "given"),
    [
        ("cifar.CIFAR10", "targets", {"train": True}),
        ("svhn.SVHN", "labels", {"split": "extra"}),
        ("stl10.STL10", "labels", {"split": "train", "folds": 3}),
        ("stl10.STL10", "labels", {"split": "train+unlabeled", "folds": None}),
    ],
)
def test_arrays_of_torchvision_become_files_in_memory(torchvision_class, name, labels, given):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), np.uint8)
    held = pixels if "cifar" in name else pixels.transpose(0, 3, 1, 2)
    marks = [3, 1, 0, 2, 1] if "cifar" in name else np.array([3, 1, 0, 2, 1])
    chosen = torchvision_class(name.partition(".")[2], data=held, **{labels: marks})
    data = {"array": "numpy", "shape": [50_000, *held.shape[1:]], "dtype": "uint8"}
    recipe = described_recipe(cifar(name, data=data, **given))
    assert recipe.degree == "exact"
    batch = first_batch(recipe, 5)
    assert chosen == {"root": "cache", **{key: value for key, value in given.items() if value is not None}}
    np.testing.assert_allclose(batch[0].permute(0, 2, 3, 1).numpy() * 255, pixels, atol=1e-3)
    assert batch[1].tolist() == [3, 1, 0, 2, 1]


@pytest.mark.parametrize(
    ("name", "files", "given"),
    [
        ("flowers102.Flowers102", "_image_files", {"split": "val"}),
        ("dtd.DTD", "_image_files", {"split": "train", "partition": 2}),
        ("sun397.SUN397", "_image_files", {}),
        ("oxford_iiit_pet.OxfordIIITPet", "_images", {"split": "trainval"}),
    ],
)
def test_files_and_labels_that_torchvision_lists(torchvision_class, folder, name, files, given):
    paths = sorted(folder.rglob("*.png"))
    chosen = torchvision_class(name.partition(".")[2], **{files: paths, "_labels": [*range(12)]})
    held = {files: {"list": 1020, "first": [{"path": str(one)} for one in paths[:3]]}}
    held |= {f"_{key}": value for key, value in given.items()} | {"_target_types": ["category"]}
    described = known(f"torchvision.datasets.{name}", root="cache", **held, transform=TENSOR, target_transform=None)
    recipe = described_recipe(described)
    assert (recipe.degree, recipe.expected.least) == ("exact", 1020)
    images, labels = first_batch(recipe, 12)
    assert chosen == {"root": "cache", **given}
    assert labels.tolist() == [*range(12)]
    expected = np.stack([np.asarray(Image.open(one)) for one in paths])
    np.testing.assert_allclose(images.permute(0, 2, 3, 1).numpy() * 255, expected, atol=1e-3)


def test_masks_as_targets_of_torchvision_are_no_labels():
    held = {"_images": [], "_split": "trainval", "_target_types": ["segmentation"], "root": "cache"}
    recipe = described_recipe(known("torchvision.datasets.oxford_iiit_pet.OxfordIIITPet", **held, transform=TENSOR))
    assert recipe.degree == "no"
    assert "targets are masks" in recipe.reason


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


LISTS = """
import json
import pandas as pd


class Listed(Dataset):
    def __init__(self, path, root):
        self.path, self.root = path, root
        df = pd.read_csv(path) if path.endswith(".csv") else None
        MAKE

    def __len__(self):
        return 12

    def __getitem__(self, index):
        TAKE
        return pixels_of(Image.open(path).convert("RGB")), label
"""
MADE = {
    "pairs": (
        "self.samples = list(zip(df.file, df.label))",
        "path, label = self.samples[index]; path = os.path.join(self.root, path)",
    ),
    "joined": (
        "self.files = [os.path.join(root, one) for one in df.file]; self.marks = df.label.tolist()",
        "path, label = self.files[index], self.marks[index]",
    ),
    "named": (
        "self.files = df.file.tolist(); self.labels = np.concatenate([df.label.values] * 9)",
        "path, label = os.path.join(self.root, self.files[index]), int(self.labels[index])",
    ),
    "nested": (
        "self.rows = [json.loads(line) for line in open(path)]",
        'row = self.rows[index]; path, label = os.path.join(self.root, row["of"]["file"]), row["of"]["labels"][1]',
    ),
    "lines": (
        "self.lines = open(path).read().splitlines()",
        'row = json.loads(self.lines[index]); path, label = os.path.join(self.root, row["file"]), row["label"]',
    ),
}


@pytest.fixture
def lists(folder, tmp_path):
    """A table whose first column is neither path nor label, and the same rows as objects."""
    files = sorted(str(file.relative_to(folder)) for file in folder.rglob("*.png"))
    rows = [{"number": 100 + k, "label": k % 5, "file": file} for k, file in enumerate(files)]
    text = "\n".join(["number,label,file", *(",".join(map(str, row.values())) for row in rows)])
    (tmp_path / "list.csv").write_text(text)
    nested = [{**row, "of": {"file": row["file"], "labels": [7, row["label"]]}} for row in rows]
    (tmp_path / "list.jsonl").write_text("\n".join(map(json.dumps, nested)))
    return tmp_path


@pytest.mark.filterwarnings("ignore:unclosed file")
@pytest.mark.parametrize("name", MADE)
def test_lists_made_of_columns_and_objects_in_lines(lists, folder, name):
    path = lists / "lists_script.py"
    make, take = (text.replace("; ", "\n        ") for text in MADE[name])
    script = loaded(LISTS.replace("MAKE", make).replace("TAKE", take), path)
    dataset = script.Listed(str(lists / ("list.jsonl" if "json" in make + take else "list.csv")), str(folder))
    recipe = recipe_of(dataset, path)
    assert recipe.degree == ("draft" if name == "named" else "exact"), recipe.parts
    assert differences(recipe, dataset) == {"0": pytest.approx(0, abs=1e-5), "1": 0}
    if name == "named":
        assert [part.part for part in recipe.unsure] == ["self.labels"]


def test_lists_that_are_the_columns_of_no_file_are_not_taken_for_them(lists, folder):
    path = lists / "other_script.py"
    make, take = (text.replace("; ", "\n        ") for text in MADE["joined"])
    text = LISTS.replace("MAKE", f"df = df.sample(frac=1, random_state=1)\n        {make}").replace("TAKE", take)
    dataset = loaded(text, path).Listed(str(lists / "list.csv"), str(folder))
    assert "compare the labels" in recipe_of(dataset, path).unsure[0].note


ARROW = """
import pyarrow.parquet as pq


class Tabled(Dataset):
    def __init__(self, path):
        self.path = path
        self.table = pq.read_table(path)

    def __len__(self):
        return self.table.num_rows

    def __getitem__(self, index):
        data, label = TAKE
        return pixels_of(Image.open(io.BytesIO(data)).convert("RGB")), label
"""


@pytest.mark.parametrize(
    ("take", "degree"),
    [
        ('self.table["picture"][index].as_py(), self.table["label"][index].as_py()', "exact"),
        ('self.table.column("picture")[index].as_py(), int(self.table.column("label")[index])', "exact"),
        ('self.table["of"][index].as_py()["bytes"], self.table["label"][index].as_py()', "exact"),
        ('self.table["of"][index].as_py()["raw"], self.table["label"][index].as_py()', "no"),
    ],
)
def test_a_table_of_pyarrows_with_images_inside(folder, tmp_path, take, degree):
    data = [one.read_bytes() for one in sorted(folder.rglob("*.png"))]
    nested = [{"bytes": one, "raw": one, "path": "x.png"} for one in data]
    table = pa.table({"number": range(12), "picture": data, "label": range(12), "of": nested})
    parquet.write_table(table, tmp_path / "list.parquet")
    path = tmp_path / "tabled_script.py"
    dataset = loaded(ARROW.replace("TAKE", take), path).Tabled(str(tmp_path / "list.parquet"))
    recipe = recipe_of(dataset, path)
    assert recipe.degree == degree, recipe
    if degree == "exact":
        assert differences(recipe, dataset) == {"0": pytest.approx(0, abs=1e-5), "1": 0}
    else:
        assert "inside of another one" in recipe.reason
