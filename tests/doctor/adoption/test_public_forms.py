"""Forms of datasets in public programs: two views, classes derived from a library's, pairs of files."""

import os

import numpy as np
import pytest
import torch
from made_recipes import CENTER, TENSOR, described_recipe, image_folder, known, loaded, recipe_of
from PIL import Image
from recorded_scripts import recorded, script_text

from headrace.doctor.adoption import adopt, compare_with_script
from headrace.doctor.adoption.module import module_text
from headrace.doctor.adoption.observed import ScriptData
from headrace.doctor.adoption.script_recipe import ScriptRecipe
from headrace.doctor.adoption.stand_ins import Rebuilding
from headrace.doctor.edits import ScriptSource, ScriptSources, files_here
from headrace.doctor.measure import Join, TrainerView
from headrace.doctor.session.model import ProbedProcess
from headrace.doctor.session.producers import OutputLeaf
from headrace.doctor.session.trainers import Trainer

DERIVED = """
class TwoCrops:
    def __init__(self, base):
        self.base = base

    def __call__(self, picture):
        return [self.base(picture), self.base(picture)]


class Jittered:
    def __init__(self, base, more):
        self.base, self.more = base, more

    def __call__(self, picture):
        first = self.base(picture)
        return [first, self.more(first)]


class WithPaths:
    def __getitem__(self, index):
        return super(WithPaths, self).__getitem__(index) + (self.imgs[index][0],)


class Pairs:
    def __getitem__(self, index):
        picture = Image.fromarray(self.data[index])
        return self.transform(picture), self.targets[index]


class Numbered:
    def find_classes(self, directory):
        return ["b", "a"], {"b": 0, "a": 1}
"""
CROP = known(
    "torchvision.transforms.transforms.RandomResizedCrop",
    size=[24, 24],
    scale=[0.2, 1.0],
    ratio=[0.75, 1.25],
    interpolation={
        "enum": "torchvision.transforms.functional.InterpolationMode",
        "name": "BILINEAR",
        "value": "bilinear",
    },
)
FLIP = known("torchvision.transforms.transforms.RandomHorizontalFlip", p=0.5)
RESIZED = """
import torchvision.transforms.functional as F


class Drawn:
    def __init__(self, least):
        self.least = least

    def __call__(self, picture):
        return F.to_tensor(F.resize(picture, random.randint(self.least, 2 * self.least)))
"""
UNET = """
def load(path):
    ending = os.path.splitext(path)[1]
    if ending == ".npy":
        return Image.fromarray(np.load(path))
    elif ending in [".pt", ".pth"]:
        return Image.fromarray(torch.load(path).numpy())
    else:
        return Image.open(path)


class Pairs(Dataset):
    def __init__(self, root, scale):
        self.images, self.masks, self.scale = Path(root, "imgs"), Path(root, "masks"), scale
        self.ids = sorted(os.path.splitext(name)[0] for name in os.listdir(self.images))

    def __len__(self):
        return len(self.ids)

    @staticmethod
    def prepared(picture, scale, is_mask):
        w, h = picture.size
        picture = picture.resize((int(scale * w), int(scale * h)), Image.NEAREST if is_mask else Image.BICUBIC)
        pixels = np.asarray(picture)
        if is_mask:
            return pixels
        if pixels.ndim == 2:
            pixels = pixels[np.newaxis, ...]
        else:
            pixels = pixels.transpose((2, 0, 1))
        if (pixels > 1).any():
            pixels = pixels / 255.0
        return pixels

    def __getitem__(self, index):
        name = self.ids[index]
        mask, image = list(self.masks.glob(name + ".*")), list(self.images.glob(name + ".*"))
        image, mask = load(image[0]), load(mask[0])
        return {
            "image": torch.as_tensor(self.prepared(image, self.scale, False).copy()).float(),
            "mask": torch.as_tensor(self.prepared(mask, self.scale, True).copy()).long(),
        }
"""


def derived(path, name, base, /, **attributes):
    """Describe an object of a class of the script's, derived from one of a library's."""
    return {"class": f"script.{name}", "file": str(path), "bases": [base] if base else [], "attributes": attributes}


def read(path, dataset, *shapes, code=DERIVED):
    """Return the recipe of a described dataset with this code."""
    path.write_text(f"import random\nfrom PIL import Image\n{code}")
    leaves = [OutputLeaf(place, "tensor", [8, *shape], "float32" if shape else "int64") for place, shape in shapes]
    facts = {"described": {"dataset": dataset}, "batch_size": 8}
    data = ScriptData(facts, Rebuilding({"dataset": dataset}), [], {one.path: one for one in leaves}, True, ["t.py"])
    return ScriptRecipe(data, [ScriptSource(str(path), path.read_text())], files_here()).recipe()


FOLDER = "torchvision.datasets.folder.ImageFolder"
VIEWS = [("0.0", [3, 24, 24]), ("0.1", [3, 24, 24]), ("1", [])]


def two_crops(path, root, kind="TwoCrops", **more):
    base = known("torchvision.transforms.transforms.Compose", transforms=[CROP, FLIP, TENSOR])
    folder = image_folder(root)
    folder["attributes"]["transform"] = derived(path, kind, "", base=base, **more)
    return folder


def test_two_views_of_a_picture_are_drawn_apart(tmp_path):
    root = tmp_path / "train"
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
        pixels = np.random.default_rng(1).integers(0, 255, (64, 80, 3), np.uint8)
        Image.fromarray(pixels).save(root / name / "1.png")
    recipe = read(tmp_path / "script.py", two_crops(tmp_path / "script.py", str(root)), *VIEWS)
    assert (recipe.degree, recipe.view) == ("exact", None)
    names = {"__name__": "draft"}
    exec(module_text(recipe), names)
    (first, second), _ = next(iter(names["batches"](names["make_loader"](2))))
    assert first.shape == second.shape == (2, 3, 24, 24)
    assert not torch.equal(first, second)


def test_a_view_that_is_drawn_once_is_that_of_both_pictures(tmp_path):
    jitter = known("torchvision.transforms.transforms.RandomGrayscale", p=0.2)
    folder = two_crops(tmp_path / "script.py", "train", "Jittered", more=jitter)
    recipe = read(tmp_path / "script.py", folder, *VIEWS)
    assert recipe.view.startswith("[hr.RandomResizedCrop(24")
    assert "view=" not in "".join(recipe.fields.values())


def test_a_class_derived_from_a_known_one_gives_what_that_gives(tmp_path):
    path = tmp_path / "script.py"
    attributes = image_folder("train", CENTER, TENSOR)["attributes"]
    leaves = [("0", [3, 24, 24]), ("1", [])]
    recipe = read(path, derived(path, "WithPaths", FOLDER, **attributes), *leaves)
    assert recipe.constants["SOURCE"] == '"train"'
    assert list(recipe.fields.values())[1:] == ["hr.Label()", "hr.Key()"]
    assert [part.part for part in recipe.unsure] == ["self.imgs"]
    recipe = read(path, derived(path, "Plain", FOLDER, **attributes), *leaves)
    assert (recipe.degree, recipe.view) == ("exact", "[hr.CenterCrop(24)]")
    recipe = read(path, derived(path, "Numbered", FOLDER, **attributes), *leaves)
    assert [(part.part, part.place) for part in recipe.unsure] == [("find_classes", "script.py:33")]


def test_a_class_derived_from_one_of_arrays_may_take_them_itself(tmp_path):
    path = tmp_path / "script.py"
    transform = known("torchvision.transforms.transforms.Compose", transforms=[TENSOR])
    held = {"array": "uint8", "shape": [50_000, 32, 32, 3], "dtype": "uint8"}
    dataset = derived(
        path, "Pairs", "torchvision.datasets.cifar.CIFAR10", root="data", train=True, transform=transform, data=held
    )
    recipe = read(path, dataset, ("0", [3, 32, 32]), ("1", []))
    assert recipe.degree == "exact", recipe.reason
    assert recipe.constants["IMAGES"] == "CIFAR10(ROOT, train=True)"
    assert recipe.fields == {"image": "hr.Image(dtype='float32', channels_last=False)", "label": "hr.Label()"}


def test_lists_of_pictures_of_different_sizes_are_no_tensor():
    leaves = [
        OutputLeaf(f"0.{number}", "tensor", [3, 500, width], "float32") for number, width in enumerate((375, 333))
    ]
    recipe = described_recipe(image_folder("train", TENSOR), batch=leaves)
    assert recipe.degree == "no"
    assert "lists of pictures of different sizes ([3, 500, 375] and [3, 500, 333])" in recipe.reason


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    root = tmp_path_factory.mktemp("pairs")
    for folder, mode in (("imgs", "RGB"), ("masks", "L")):
        (root / folder).mkdir()
        for number in range(3):
            Image.new(mode, (40, 30), number).save(root / folder / f"{number}.png")
    path = root / "pairs_script.py"
    return path, loaded(f"from pathlib import Path\n{UNET}", path).Pairs(str(root), 0.5)


def test_a_function_that_opens_files_by_their_ending_is_followed(pairs):
    path, dataset = pairs
    recipe = recipe_of(dataset, path)
    assert recipe.degree == "draft"
    names = {"__name__": "draft"}
    exec(module_text(recipe), names)
    assert {len(batch["image"]) for batch in names["batches"](names["make_loader"](3))} == {3}
    assert recipe.view == "[hr.Resize((15, 20))]"
    assert recipe.fields["image"] == "hr.Image(dtype='float32', channels_last=False)"
    notes = {part.part: part.note for part in recipe.unsure}
    assert notes["if (pixels > 1).any()"] == "taken here as if it were always so"


def test_a_call_whose_arguments_the_script_computes_is_named_as_it_stands(tmp_path):
    path = tmp_path / "script.py"
    folder = image_folder("train")
    folder["attributes"]["transform"] = derived(path, "Drawn", "", least=32)
    recipe = read(path, folder, ("0", [3, 24, 24]), ("1", []), code=RESIZED)
    assert recipe.reason.startswith("F.resize(picture, random.randint(self.least, 2 * self.least)) (script.py:")
    assert recipe.view == "[hr.Resize((24, 24))]"


def test_a_launched_script_is_compared_by_itself():
    session = recorded("folder_v1")
    session.outcome.command = ["torchrun", "--nproc-per-node", "2", "folder_v1.py", "/data"]
    (first,) = session.trainers
    argv = ["/usr/bin/python", "-u", "folder_v1.py", "/data"]
    session.processes = [
        ProbedProcess(first.pid, 1, "host", "trainer", 0, None, None, facts={"process": {"argv": argv}})
    ]
    session.trainers.append(Trainer(first.pid + 1, "host", 1))
    sources = ScriptSources({"/project/folder_v1.py": script_text("folder_v1")}.get)
    text = adopt(session, TrainerView.of(session, first, Join(session)), sources).module_text
    assert text.startswith('"""Data of folder_v1.py through')
    assert 'SCRIPT = ["folder_v1.py", "/data"]' in text
    assert "launched=True" in text


def test_a_launched_script_finds_itself_the_only_rank(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "ranked.py"
    script.write_text(
        "import os\nfrom torch.utils.data import DataLoader\n"
        "ranks = [int(os.environ[name]) for name in ('RANK', 'LOCAL_RANK', 'WORLD_SIZE')]\n"
        "list(DataLoader(ranks, batch_size=3)) if os.environ['MASTER_ADDR'] and int(os.environ['MASTER_PORT']) else 0\n"
    )

    def make_loader(size, shuffle):
        raise KeyError("the script has reached its loader")

    with pytest.raises(KeyError, match="reached"):
        compare_with_script(make_loader, iter, [str(script)], launched=True)
    assert "MASTER_PORT" not in os.environ
