"""Transforms of the script's own, around those of a library: what public training programs write."""

import pytest

from headrace.doctor.adoption.observed import ScriptData, order_described
from headrace.doctor.adoption.script_recipe import ScriptRecipe
from headrace.doctor.adoption.stand_ins import Rebuilding
from headrace.doctor.edits import ScriptSource, files_here
from headrace.doctor.session.producers import OutputLeaf

PRESETS = """
class TrainPreset:
    def __init__(self, size):
        self.transforms = Compose([CenterCrop(size), ToTensor()])

    def __call__(self, img):
        return self.transforms(img)


class Brighter:
    def __call__(self, img):
        return img.point(lambda value: value * 2)


def to_pixels(img):
    return to_tensor(center_crop(img.convert("RGB"), 24))


def collate_fn(batch):
    return mixup_cutmix(*default_collate(batch))


class Captions:
    def __getitem__(self, index):
        item = {key: torch.tensor(values[index]) for key, values in unheard_of(self.texts)}
        item["image"] = index
        return item
"""
HEAD = """import torch
from torch.utils.data import default_collate
from torchvision.transforms.functional import center_crop, to_tensor
"""


def known(name, **attributes):
    """Describe an object of a library's."""
    return {"class": name, "attributes": attributes}


def compose(*transforms):
    return known("torchvision.transforms.transforms.Compose", transforms=list(transforms))


CENTER = known("torchvision.transforms.transforms.CenterCrop", size=[24, 24])
TENSOR = known("torchvision.transforms.transforms.ToTensor")


def recipe_of(path, *, transform=None, dataset=None, collate=None, labels=(8,)):
    path.write_text(HEAD + PRESETS)
    described = dataset or known("torchvision.datasets.folder.ImageFolder", root="train", transform=transform)
    batch = {
        "0": OutputLeaf("0", "tensor", [8, 3, 24, 24], "float32"),
        "1": OutputLeaf("1", "tensor", list(labels), "int64" if len(labels) == 1 else "float32"),
    }
    facts = {"described": {}, "batch_size": 8}
    rebuilt = Rebuilding({"dataset": described, "collate": collate})
    data = ScriptData(facts, rebuilt, [], batch, True, ["python", "train.py"])
    return ScriptRecipe(data, [ScriptSource(str(path), path.read_text())], files_here()).recipe()


def own(path, name, **attributes):
    return {"class": f"presets.{name}", "file": str(path), "attributes": attributes}


def test_a_preset_around_a_compose_is_followed(tmp_path):
    path = tmp_path / "presets.py"
    recipe = recipe_of(path, transform=own(path, "TrainPreset", transforms=compose(CENTER, TENSOR)))
    assert (recipe.degree, recipe.view) == ("exact", "[hr.CenterCrop(24)]")
    assert recipe.fields["image"] == "hr.Image(dtype='float32', channels_last=False)"


def test_a_function_for_a_transform_is_followed(tmp_path):
    path = tmp_path / "presets.py"
    recipe = recipe_of(path, transform={"function": "presets.to_pixels", "file": str(path)})
    assert (recipe.degree, recipe.view) == ("exact", "[hr.CenterCrop(24)]")


def test_a_step_of_the_scripts_own_in_a_compose_is_named_with_its_line(tmp_path):
    path = tmp_path / "presets.py"
    recipe = recipe_of(path, transform=compose(own(path, "Brighter"), CENTER, TENSOR))
    (part,) = [part for part in recipe.parts if part.certainty == "python"]
    line = next(n for n, text in enumerate((HEAD + PRESETS).splitlines(), 1) if "img.point" in text)
    assert (recipe.degree, recipe.view, part.place) == ("draft", "[hr.CenterCrop(24)]", f"presets.py:{line}")


def test_mixup_as_the_only_choice_leaves_labels_labels(tmp_path):
    path = tmp_path / "presets.py"
    mixup = own(path, "RandomMixUp", alpha=0.2, p=1.0, num_classes=2)
    choice = known("torchvision.transforms.transforms.RandomChoice", transforms=[mixup])
    collate = {"function": "presets.collate_fn", "file": str(path), "closure": {"mixup_cutmix": choice}}
    recipe = recipe_of(path, transform=compose(CENTER, TENSOR), collate=collate, labels=(8, 2))
    assert (recipe.fields["label"], recipe.mixing) == ("hr.Label()", "hr.MixUp(alpha=0.2)")
    assert recipe.output == "(batch['image'], batch['label'])"
    assert [part.certainty for part in recipe.parts if "MixUp" in part.part] == ["check"]  # a class of that name


def test_code_that_is_not_understood_is_named(tmp_path):
    path = tmp_path / "presets.py"
    recipe = recipe_of(path, dataset=own(path, "Captions", texts=[]))
    assert recipe.degree == "no"
    assert "Captions.__getitem__ returns is not understood: {key: " in recipe.reason
    assert "(presets.py:" in recipe.reason


CELLS = """
import os
import cv2
import numpy as np

class Cells:
    def __getitem__(self, index):
        name = self.names[index]
        image = cv2.imread(os.path.join(self.root, "images", name + ".png"), cv2.IMREAD_COLOR_RGB)
        masks = []
        for number in range(self.classes):
            masks.append(cv2.imread(os.path.join(self.root, "masks", str(number), name + ".png"), cv2.IMREAD_GRAYSCALE))
        found = self.transform(image=image, mask=np.dstack(masks))
        return found["image"].astype("float32") / 255 + 1, found["mask"].astype("float32") / 255
"""


def test_arithmetic_behind_normalize_and_masks_of_a_loop(tmp_path):
    path = tmp_path / "cells.py"
    path.write_text(CELLS)
    normalize = known(
        "albumentations.Normalize",
        mean=[0.5] * 3,
        std=[0.25] * 3,
        max_pixel_value=255.0,
        normalization="standard",
        p=1.0,
    )
    resize = known("albumentations.Resize", height=24, width=24, interpolation=1, p=1.0)
    transform = known("albumentations.core.composition.Compose", transforms=[resize, normalize], p=1.0)
    attributes = {"names": {"list": 99, "first": ["a", "b"]}, "root": "cells", "classes": 1, "transform": transform}
    described = {"class": "cells.Cells", "file": str(path), "attributes": attributes}
    batch = {
        "0": OutputLeaf("0", "tensor", [8, 24, 24, 3], "float32"),
        "1": OutputLeaf("1", "tensor", [8, 24, 24, 1], "float32"),
    }
    rebuilt = Rebuilding({"dataset": described, "collate": None})
    data = ScriptData({"described": {}, "batch_size": 8}, rebuilt, [], batch, True, ["python", "cells.py"])
    recipe = ScriptRecipe(data, [ScriptSource(str(path), CELLS)], files_here()).recipe()
    # (x / 255 - 0.5) / 0.25 / 255 + 1 is (x / 255 + 63.25) / 63.75
    assert "hr.Normalize((-63.25, -63.25, -63.25), (63.75, 63.75, 63.75))" in recipe.fields["image"]
    assert recipe.constants["SOURCE"].count("cells/") == 2
    assert recipe.fields["mask"] == "hr.Mask()"
    assert "found['mask'].astype('float32') / 255" in [part.part for part in recipe.parts if part.certainty == "check"]


FOLDER = """
class Photos:
    def __init__(self, file_names):
        self.file_names = file_names

    def __getitem__(self, index):
        return to_tensor(Image.open(self.file_names[index]).convert("RGB"))
"""


def photos(path, names):
    path.write_text("from PIL import Image\n" + HEAD + FOLDER)
    listed = {"list": len(names) * 100, "first": names}
    return {"class": "photos.Photos", "file": str(path), "attributes": {"file_names": listed}}


def read_by(path, dataset, **described):
    rebuilt = Rebuilding({"dataset": dataset, "collate": None})
    seen = {"": OutputLeaf("", "tensor", [8, 3, 24, 24], "float32")}
    data = ScriptData({"described": described, "batch_size": 8}, rebuilt, [], seen, True, ["python", "train.py"])
    return ScriptRecipe(data, [ScriptSource(str(path), path.read_text())], files_here()).recipe()


def test_files_of_one_folder_are_that_folder_and_no_classes(tmp_path):
    path = tmp_path / "photos.py"
    recipe = read_by(path, photos(path, ["/data/pets/cat_1.jpg", "/data/pets/dog_2.jpg"]))
    assert (recipe.source, recipe.constants["SOURCE"]) == ("hr.open(SOURCE, classes=False)", '"/data/pets"')


def test_the_folder_that_the_script_names_counts_where_the_first_files_lie_in_one_below(tmp_path):
    path = tmp_path / "photos.py"
    dataset = photos(path, ["/data/pets/cats/1.jpg", "/data/pets/cats/2.jpg"])
    dataset["attributes"]["folder"] = "/data/pets/"
    assert read_by(path, dataset).constants["SOURCE"] == '"/data/pets"'


def test_rows_of_a_long_list_may_be_lists(tmp_path):
    path = tmp_path / "photos.py"
    recipe = read_by(path, photos(path, [["/data/1.jpg", {"a": [1]}], ["/data/2.jpg", {"a": [2]}]]))
    assert "fault of the doctor" not in recipe.reason


def test_files_of_folders_are_the_folder_above(tmp_path):
    path = tmp_path / "photos.py"
    recipe = read_by(path, photos(path, ["/data/cats/1.jpg", "/data/dogs/2.jpg"]))
    assert recipe.constants["SOURCE"] == '"/data"'


def test_a_random_split_of_the_scripts_own_dataset_is_read_inside(tmp_path):
    path = tmp_path / "photos.py"
    inner = photos(path, ["/data/pets/cat_1.jpg", "/data/pets/dog_2.jpg"])
    subset = known("torch.utils.data.dataset.Subset", dataset=inner, indices={"list": 90, "first": [3, 1, 2]})
    recipe = read_by(path, subset)
    assert (recipe.degree, recipe.constants["SOURCE"]) == ("draft", '"/data/pets"')
    assert "Subset" in [part.part for part in recipe.parts if part.certainty == "check"]


def test_a_librarys_class_that_is_not_known_is_said_to_be_one(tmp_path):
    path = tmp_path / "photos.py"
    photos(path, [])
    for name in ("torchvision.datasets.places365.Places365", "monai.data.dataset.CacheDataset"):
        recipe = read_by(path, known(name, root="data"))
        assert recipe.reason == f"{name} is not among the dataset classes that the doctor knows"


@pytest.mark.parametrize("is_read", [True, False])
def test_code_that_a_class_inherits_is_not_said_to_be_missing(tmp_path, is_read):
    path = tmp_path / "photos.py"
    path.write_text("class Photos(monai.data.CacheDataset):\n    pass\n")
    dataset = {**known("photos.Photos"), "file": str(path if is_read else tmp_path / "gone.py"), "line": 1}
    reason = read_by(path, dataset).reason
    assert reason.startswith("photos.Photos takes its __getitem__ from" if is_read else str(tmp_path / "gone.py"))


def test_the_order_is_that_of_a_batch_samplers_sampler(tmp_path):
    path = tmp_path / "photos.py"
    dataset = photos(path, ["/data/pets/cat_1.jpg", "/data/pets/dog_2.jpg"])
    ordered = known("torch.utils.data.sampler.SequentialSampler")
    drawn = known("torch.utils.data.sampler.BatchSampler", sampler=known("torch.utils.data.sampler.RandomSampler"))
    assert not read_by(path, dataset, sampler=ordered).shuffle
    assert read_by(path, dataset, sampler=ordered, batch_sampler=drawn).shuffle
    assert not order_described({"sampler": ordered, "batch_sampler": None})["class"].endswith("RandomSampler")
    grouped = known("group_by_aspect_ratio.GroupedBatchSampler", sampler=drawn)
    assert order_described({"sampler": ordered, "batch_sampler": grouped}) is grouped
    again = {"class": "torch.utils.data.sampler.RandomSampler", "again": "sampler"}  # a DataLoader with shuffle=True
    usual = known("torch.utils.data.sampler.BatchSampler", sampler=again)
    shuffled = known("torch.utils.data.sampler.RandomSampler", replacement=False)
    assert order_described({"sampler": shuffled, "batch_sampler": usual}) is shuffled


def test_a_library_that_lies_beside_the_script_is_no_code_of_its_own(tmp_path):
    path = tmp_path / "presets.py"
    crop = {"class": "torchvision.transforms.transforms.Brighter", "file": str(path), "attributes": {}}
    recipe = recipe_of(path, transform=compose(crop, CENTER, TENSOR))
    assert not any("img.point" in part.part for part in recipe.parts)


def test_files_found_by_glob_and_a_static_method(tmp_path):
    path = tmp_path / "found.py"
    path.write_text(
        """
from PIL import Image

class Found:
    @staticmethod
    def small(image, size):
        return image.resize((size, size))

    def __getitem__(self, index):
        file = list(self.root.glob(self.names[index] + ".*"))
        return self.small(Image.open(file[0]), 24)
"""
    )
    attributes = {"names": {"list": 99, "first": ["a", "b"]}, "root": {"path": "/data/imgs"}}
    recipe = read_by(path, {"class": "found.Found", "file": str(path), "attributes": attributes})
    assert (recipe.constants["SOURCE"], recipe.view) == ('"/data/imgs/"', "[hr.Resize((24, 24))]")
