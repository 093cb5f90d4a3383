"""Random scales and crops that scripts write themselves: their draws, sides and boxes, as views."""

import numpy as np
import pytest
from made_recipes import loaded, paired, recipe_of
from PIL import Image
from recorded_scripts import recorded, script_text
from torch.utils.data import DataLoader

from headrace.doctor.adoption import adopt, module_text
from headrace.doctor.adoption.comparison import compared
from headrace.doctor.adoption.observed import ScriptData
from headrace.doctor.adoption.script_recipe import ScriptRecipe
from headrace.doctor.adoption.stand_ins import Rebuilding
from headrace.doctor.edits import ScriptSource, ScriptSources, files_here
from headrace.doctor.measure import Join, TrainerView
from headrace.doctor.session.producers import ObservedCall, ObservedSample, OutputLeaf

IMAGE_SIZES = [[500, 375], [500, 375]]
CODE = """
import random
import cv2
import numpy as np
import torch
from PIL import Image, ImageOps
from torchvision import transforms
import torchvision.transforms.functional as TF

SIZE = 64


class RandomScaleCrop:
    def __call__(self, sample):
        image, mask = sample["image"], sample["mask"]
        side = random.randint(int(self.base * 0.5), int(self.base * 2.0))
        w, h = image.size
        if h > w:
            ow = side
            oh = int(1.0 * h * ow / w)
        else:
            oh = side
            ow = int(1.0 * w * oh / h)
        image = image.resize((ow, oh), Image.BILINEAR)
        mask = mask.resize((ow, oh), Image.NEAREST)
        if side < SIZE:
            padh = SIZE - oh if oh < SIZE else 0
            padw = SIZE - ow if ow < SIZE else 0
            image = ImageOps.expand(image, border=(0, 0, padw, padh), fill=0)
            mask = ImageOps.expand(mask, border=(0, 0, padw, padh), fill=7)
        w, h = image.size
        x1 = random.randint(0, w - SIZE)
        y1 = random.randint(0, h - SIZE)
        image = image.crop((x1, y1, x1 + SIZE, y1 + SIZE))
        return {"image": image, "mask": mask.crop((x1, y1, x1 + SIZE, y1 + SIZE))}


def deeplab(self, image, mask):
    sample = {"image": image, "mask": mask}
    sample = self.steps(sample)
    return sample["image"], sample["mask"]


def parameters(self, image, mask):
    i, j, h, w = transforms.RandomCrop.get_params(image, output_size=(SIZE, SIZE))
    return TF.crop(image, i, j, h, w), TF.crop(mask, i, j, h, w)


def window(self, image, mask):
    i, j, h, w = transforms.RandomResizedCrop.get_params(image, scale=(0.5, 1.0), ratio=(0.75, 1.5))
    image = TF.resized_crop(image, i, j, h, w, [SIZE, SIZE])
    return image, TF.resized_crop(mask, i, j, h, w, [SIZE, SIZE], TF.InterpolationMode.NEAREST)


def slices(self, image, mask):
    image, mask = np.array(image), np.array(mask)
    h, w = image.shape[:2]
    y = np.random.randint(0, h - SIZE + 1)
    x = np.random.randint(0, w - SIZE + 1)
    return image[y : y + SIZE, x : x + SIZE], mask[y : y + SIZE, x : x + SIZE]


def factors(self, image, mask):
    image, mask = np.array(image), np.array(mask)
    scale = random.choice([0.5, 0.75, 1.0, 1.5])
    h, w = image.shape[0], image.shape[1]
    image = cv2.resize(image, (int(w * scale), int(h * scale)), interpolation=cv2.INTER_LINEAR)
    mask = cv2.resize(mask, (int(w * scale), int(h * scale)), interpolation=cv2.INTER_NEAREST)
    h, w = image.shape[:2]
    image = cv2.copyMakeBorder(image, 0, max(SIZE - h, 0), 0, max(SIZE - w, 0), cv2.BORDER_CONSTANT, value=(0, 0, 0))
    mask = cv2.copyMakeBorder(mask, 0, max(SIZE - h, 0), 0, max(SIZE - w, 0), cv2.BORDER_CONSTANT, value=255)
    y, x = random.randint(0, h - SIZE), random.randint(0, w - SIZE)
    return image[y : y + SIZE, x : x + SIZE], mask[y : y + SIZE, x : x + SIZE]


class Pairs:
    def __getitem__(self, index):
        name = self.names[index]
        image = Image.open(self.root + "/images/" + name + ".jpg").convert("RGB")
        mask = Image.open(self.root + "/masks/" + name + ".png")
        image, mask = STEPS(self, image, mask)
        return TF.to_tensor(image), torch.from_numpy(np.array(mask)).long()
"""


def pairs(path, steps, sizes=IMAGE_SIZES):
    text = CODE.replace("STEPS", steps)
    path.write_text(text)
    scaling = {"class": "pairs.RandomScaleCrop", "file": str(path), "attributes": {"base": 60}}
    compose = {"class": "torchvision.transforms.transforms.Compose", "attributes": {"transforms": [scaling]}}
    attributes = {"names": {"list": 99, "first": ["a", "b"]}, "root": "/data", "steps": compose}
    described = {"class": "pairs.Pairs", "file": str(path), "attributes": attributes, "globals": {"SIZE": 64}}
    batch = {
        "0": OutputLeaf("0", "tensor", [8, 3, 64, 64], "float32"),
        "1": OutputLeaf("1", "tensor", [8, 64, 64], "int64"),
    }
    calls = [ObservedCall("decode:Pillow open", None, {"size": size}) for size in sizes]
    seen = [ObservedSample(0, 1, "0", 10, calls=calls)]
    rebuilt = Rebuilding({"dataset": described, "collate": None})
    data = ScriptData({"described": {}, "batch_size": 8}, rebuilt, seen, batch, True, ["python", "pairs.py"])
    return ScriptRecipe(data, [ScriptSource(str(path), text)], files_here()).recipe()


@pytest.mark.parametrize(
    ("steps", "view"),
    [
        ("deeplab", "[hr.RandomScale(tuple(range(30, 121, 5))), hr.RandomCrop(64, pad_if_needed=True)]"),
        ("parameters", "[hr.RandomCrop(64)]"),
        ("window", "[hr.RandomResizedCrop(64, scale=(0.5, 1.0), ratio=(0.75, 1.5))]"),
        ("slices", "[hr.RandomCrop(64)]"),
        ("factors", "[hr.RandomScale((188, 281, 375, 562)), hr.RandomCrop(64, pad_if_needed=True)]"),
    ],
)
def test_crops_of_public_programs_are_views(steps, view, tmp_path):
    recipe = pairs(tmp_path / "pairs.py", steps)
    assert recipe.view == view
    assert [part.part for part in recipe.unsure] == ["files"]
    assert recipe.fields["mask"] == (
        "hr.Mask(dtype='int64', ignore=7)" if steps == "deeplab" else "hr.Mask(dtype='int64')"
    )
    module_text(recipe)


def test_factors_of_pictures_of_several_sizes_are_to_be_checked(tmp_path):
    recipe = pairs(tmp_path / "pairs.py", "factors", [[500, 375], [640, 480], [640, 480]])
    assert recipe.view == "[hr.RandomScale((240, 360, 480, 720)), hr.RandomCrop(64, pad_if_needed=True)]"
    assert "pictures of 480 pixels" in recipe.unsure[1].note
    assert "cv2.resize" in pairs(tmp_path / "pairs.py", "factors", []).unsure[1].part


def test_the_recorded_script_has_its_scales():
    session = recorded("masks_scale")
    sources = ScriptSources({"/project/masks_scale.py": script_text("masks_scale")}.get)
    recipe = adopt(session, TrainerView.of(session, session.trainers[0], Join(session)), sources).recipe
    crop = "hr.RandomHorizontalFlip(), hr.RandomCrop(256, pad_if_needed=True)"
    assert recipe.view == f"[hr.RandomScale(tuple(range(188, 751, 35))), {crop}]"
    assert [part.part for part in recipe.unsure] == ["files"]


SCALED = """
from PIL import ImageOps


def scaled(image, mask, size=48, scales=(1.0, 1.0)):
    scale = random.uniform(*scales)
    width, height = int(image.width * scale), int(image.height * scale)
    image, mask = image.resize((width, height), Image.BILINEAR), mask.resize((width, height), Image.NEAREST)
    border = (0, 0, max(size - width, 0), max(size - height, 0))
    image = ImageOps.expand(image, border=border, fill=0)
    mask = ImageOps.expand(mask, border=border, fill=255)
    x, y = random.randint(0, image.width - size), random.randint(0, image.height - size)
    return image.crop((x, y, x + size, y + size)), mask.crop((x, y, x + size, y + size))

"""
SCALED += (
    paired("Scaled", "png")
    + """\
        image, mask = scaled(image, mask)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1), torch.from_numpy(np.array(mask)).long()
"""
)


@pytest.fixture
def scaled(tmp_path):
    """Four images with masks, and what makes a dataset of them with its recipe."""
    for number in range(4):
        state = np.random.default_rng(number)
        for name, shape in (("images", (32, 40, 3)), ("masks", (32, 40))):
            (tmp_path / name).mkdir(exist_ok=True)
            Image.fromarray(state.integers(0, 200, shape, np.uint8)).save(tmp_path / name / f"{number}.png")
    seen = [ObservedSample(0, 1, "0", 10, calls=[ObservedCall("decode:Pillow open", None, {"size": [40, 32]})])]

    def make(text):
        path = tmp_path / "scaled_script.py"
        dataset = loaded(text, path).Scaled(str(tmp_path))
        return dataset, recipe_of(dataset, path, samples=seen)

    return make


def test_what_a_crop_holds_is_what_the_scripts_holds(scaled):
    dataset, recipe = scaled(SCALED)
    assert recipe.view == "[hr.RandomScale(tuple(range(32, 33, 1))), hr.RandomCrop(48, pad_if_needed=True)]"
    names = {"__name__": "draft"}
    exec(module_text(recipe), names)
    (batch,) = names["batches"](names["make_loader"](4, shuffle=False))
    for number in range(4):
        for mine, theirs in zip((one[number] for one in batch), dataset[number], strict=True):
            assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
            assert (mine.ravel().sort().values == theirs.ravel().sort().values).all()  # padded on other sides


def test_several_scales_are_compared_at_the_middle_one(scaled):
    dataset, recipe = scaled(SCALED.replace("size=48, scales=(1.0, 1.0)", "size=24, scales=(0.5, 2.0)"))
    assert recipe.view == "[hr.RandomScale(tuple(range(16, 65, 3))), hr.RandomCrop(24, pad_if_needed=True)]"
    names = {"__name__": "draft"}
    exec(module_text(recipe), names)
    rows = list(compared(DataLoader(dataset), names["make_loader"], names["batches"], 4))
    assert [(row.loader[0], row.is_same_kind, row.drawn) for row in rows] == [
        ("uint8[1, 3, 24, 24]", True, True),
        ("int64[1, 24, 24]", True, True),
    ]
