"""Recipes of pictures that are no plain window of a file: stacks of crops, halves, and windows of other pixels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image, ImageFilter, ImageOps

import headrace as hr
from headrace.compare import EpochObservation, LoaderObservation, judge
from headrace.doctor.adoption import LoaderRecipe
from headrace.doctor.adoption.explained_recipe import explained_recipe
from headrace.doctor.explain.look import LiveTransform, read_look
from headrace.doctor.explain.samples import explain_look
from headrace.doctor.probe.look import value_look
from headrace.doctor.probe.look.value_look import look_at_values

COUNT, HEIGHT, WIDTH = 12, 96, 160


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("scenes")
    for number in range(COUNT):
        state = np.random.default_rng(number)
        coarse = Image.fromarray(state.integers(0, 256, (HEIGHT // 6, WIDTH // 6, 3), dtype=np.uint8))
        picture = coarse.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
        picture.save(made / f"{number}.png")
        picture.convert("L").save(made / f"grey{number}.png")
        classes = np.kron(state.integers(0, 4, (HEIGHT // 8, WIDTH // 8)), np.ones((8, 8))).astype(np.uint8)
        Image.fromarray(classes).save(made / f"classes{number}.png")
    return made


class Scenes:
    def __init__(self, folder: Path) -> None:
        self.files = [f"{folder}/{number}.png" for number in range(COUNT)]
        self.classes = [f"{folder}/classes{number}.png" for number in range(COUNT)]

    def __len__(self) -> int:
        return COUNT

    def picture(self, index: int) -> Image.Image:
        return Image.open(self.files[index]).convert("RGB")


def recipe_of(dataset: Scenes, folder: Path, *transforms: LiveTransform) -> LoaderRecipe:
    look_at_values(torch.utils.data.DataLoader(dataset), str(folder / "look"))
    look = replace(read_look(folder / "look"), transforms=transforms)
    return explained_recipe(look, explain_look(look))


def first_batch(recipe: LoaderRecipe, folder: Path) -> Any:
    pq.write_table(pa.table(dict(recipe.columns)), folder / "manifest.parquet")
    space = {"hr": hr}
    fields = {name: eval(code, space) for name, code in recipe.fields.items()}
    view = eval(recipe.view or "None", space)
    loader = hr.Loader(hr.open(folder / "manifest.parquet"), fields, view=view, batch_size=COUNT, shuffle=False)
    return eval(recipe.output, {"batch": next(iter(loader)), "torch": torch})


class TenCrops(Scenes):
    """Four corners and the middle of each picture, as it is and mirrored, as torchvision's TenCrop cuts them."""

    def crops(self, picture: Image.Image) -> list[Image.Image]:
        down, right = picture.height - 64, picture.width - 64
        places = [(0, 0), (right, 0), (0, down), (right, down), (round(right / 2), round(down / 2))]
        return [picture.crop((left, top, left + 64, top + 64)) for left, top in places]

    def __getitem__(self, index: int) -> torch.Tensor:
        picture = self.picture(index).resize((int(80 * WIDTH / HEIGHT), 80), Image.Resampling.BILINEAR)
        mirrored = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = np.stack([np.array(each) for one in (picture, mirrored) for each in self.crops(one)])
        return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255


def test_a_stack_of_fixed_crops_is_one_field(folder: Path, tmp_path: Path) -> None:
    script = TenCrops(folder)
    recipe = recipe_of(script, tmp_path)
    assert (recipe.covered, recipe.parts, recipe.view) == (("",), (), None)
    made = first_batch(recipe, tmp_path)
    assert made.shape == (COUNT, 10, 3, 64, 64)
    for number in range(COUNT):
        assert (made[number] - script[number]).abs().max() <= 1.01 / 255


class Grey(Scenes):
    """Pictures of one channel, repeated in three."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.grey = [f"{folder}/grey{number}.png" for number in range(COUNT)]

    def __getitem__(self, index: int) -> np.ndarray:
        return np.array(Image.open(self.grey[index]).convert("RGB"))


def test_a_grey_picture_in_three_channels_is_one(folder: Path, tmp_path: Path) -> None:
    script = Grey(folder)
    recipe = recipe_of(script, tmp_path)
    assert (recipe.covered, recipe.parts) == (("",), ())
    assert all(np.array_equal(one, script[number]) for number, one in enumerate(first_batch(recipe, tmp_path)))


class Halves(Scenes):
    """Two halves of a picture, both mirrored or neither."""

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        pixels = np.array(self.picture(index))
        turn = -1 if torch.rand(1) < 0.5 else 1
        return {"a": pixels[:, : WIDTH // 2][:, ::turn].copy(), "b": pixels[:, WIDTH // 2 :][:, ::turn].copy()}


def test_halves_that_are_mirrored_together_are_cut_of_one_picture(folder: Path, tmp_path: Path) -> None:
    script = Halves(folder)
    recipe = recipe_of(script, tmp_path)
    assert (set(recipe.covered), recipe.parts) == ({"a", "b"}, ())
    assert [code.startswith("hr.Image") for code in recipe.fields.values()].count(True) == 1
    made = first_batch(recipe, tmp_path)
    turned = set()
    for number in range(COUNT):
        pixels = np.array(script.picture(number))
        for turn in (1, -1):
            halves = pixels[:, : WIDTH // 2][:, ::turn], pixels[:, WIDTH // 2 :][:, ::turn]
            if all(np.array_equal(made[name][number], half) for name, half in zip("ab", halves, strict=True)):
                turned.add((number, turn))
    assert len(turned) == COUNT
    assert len({turn for _, turn in turned}) == 2


class Corner(Scenes):
    """The same corner of every picture."""

    def __getitem__(self, index: int) -> np.ndarray:
        return np.array(self.picture(index))[10:60, 20:100]


def test_a_fixed_window_is_cut_of_the_whole_picture(folder: Path, tmp_path: Path) -> None:
    script = Corner(folder)
    recipe = recipe_of(script, tmp_path)
    assert (recipe.covered, recipe.parts, recipe.view) == (("",), (), None)
    made = first_batch(recipe, tmp_path)
    assert all(np.array_equal(made[number], script[number]) for number in range(COUNT))


class Blurred(Scenes):
    """A drawn window of classes, and of the picture, which is blurred in half of the samples."""

    def shown(self, index: int) -> Image.Image:
        return self.picture(index).filter(ImageFilter.GaussianBlur(0.8)) if torch.rand(1) < 0.5 else self.picture(index)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        top, left = (int(torch.randint(side - 64, ())) for side in (HEIGHT, WIDTH))
        box = (left, top, left + 64, top + 64)
        classes = torch.from_numpy(np.array(Image.open(self.classes[index]).crop(box)))
        pixels = torch.from_numpy(np.array(self.shown(index).crop(box))).permute(2, 0, 1)
        return {"image": pixels / 127.5 - 1, "classes": classes}


class Brightened(Blurred):
    """The same, by a brightness of each sample's own."""

    def shown(self, index: int) -> Image.Image:
        by = 0.92 + 0.08 * float(torch.rand(1))
        return self.picture(index).point(lambda level: level * by)


@pytest.mark.parametrize("dataset", [Blurred, Brightened])
def test_a_picture_of_the_scripts_own_pixels_takes_the_window_of_its_mask(
    dataset: type[Scenes], folder: Path, tmp_path: Path
) -> None:
    recipe = recipe_of(dataset(folder), tmp_path)
    assert set(recipe.covered) == {"image", "classes"}
    assert recipe.view == "hr.RandomCrop((64, 64))"
    assert [(part.part, part.certainty) for part in recipe.parts] == [("image", "check")]
    assert "hr.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))" in recipe.fields["image"]


class Contrasted(Scenes):
    """A drawn window of the picture and its classes from 1 on, by a contrast of each sample's own, at a rare scale."""

    numbers = np.array([3, 0, 2, 1])

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        top, left = (int(torch.randint(side - 64, ())) for side in (HEIGHT, WIDTH))
        box, by = (left, top, left + 64, top + 64), 0.8 + 0.4 * float(torch.rand(1))
        shown = self.picture(index).point(lambda level: 128 + (level - 128) * by)
        pixels = (np.array(shown.crop(box), np.float32) / 255 - np.float32(0.37)) / np.float32(0.21)
        return {"image": pixels, "classes": self.numbers[np.array(Image.open(self.classes[index]).crop(box))]}


class Lowered(Contrasted):
    numbers = np.array([-1, 0, 1, 2])


def test_the_values_of_bytes_show_their_scale(folder: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)  # the contrast of some samples clips
    recipe = recipe_of(Contrasted(folder), tmp_path)
    scale = eval(recipe.fields["image"], {"hr": hr}).normalize
    assert np.allclose(scale.std, 0.21, atol=1e-3)
    assert np.allclose(scale.mean, 0.37, atol=2 / 255)


def test_a_table_of_seen_classes_reaches_those_that_were_not(folder: Path, tmp_path: Path) -> None:
    remap = eval(recipe_of(Lowered(folder), tmp_path).fields["classes"], {"hr": hr}).remap
    assert [remap[value] for value in (0, 1, 3, 200)] == [-1, 0, 2, 199]
    recipe = recipe_of(Contrasted(folder), tmp_path)  # of which the others are not known
    assert [part.certainty for part in recipe.parts if part.part == "classes"] == ["check"]


class Inverted(Scenes):
    """A drawn window of the picture, whose levels are inverted in half of the samples."""

    def __getitem__(self, index: int) -> np.ndarray:
        top, left = (int(torch.randint(side - 64, ())) for side in (HEIGHT, WIDTH))
        shown = self.picture(index).crop((left, top, left + 64, top + 64))
        return np.array(shown.point(lambda level: level ^ 85) if torch.rand(1) < 0.5 else shown)


def test_a_window_that_some_samples_show_as_it_is_needs_a_check(folder: Path, tmp_path: Path) -> None:
    torch.manual_seed(1)
    recipe = recipe_of(Inverted(folder), tmp_path)
    assert (len(recipe.covered), recipe.view) == (1, "hr.RandomCrop((64, 64))")
    assert [part.certainty for part in recipe.parts] == ["check"]


def test_whether_samples_are_mixed_is_seen_though_not_all_fit(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(value_look, "MOST_BYTES", 5 * 64 * 64 * 3 + 3 * HEIGHT * WIDTH * 3)
    look_at_values(torch.utils.data.DataLoader(Inverted(folder), batch_size=2), str(tmp_path / "look"))
    look = read_look(tmp_path / "look")
    assert len(look.samples) < COUNT
    assert look.mixed == frozenset()


class Flipped(Blurred):
    """A drawn window of the picture, mirrored or not."""

    def __getitem__(self, index: int) -> Any:
        turn = -1 if torch.rand(1) < 0.5 else 1
        return super().__getitem__(index)["classes"].numpy()[:, ::turn].copy()


def test_a_transform_that_does_not_mirror_is_not_all_that_the_script_does(folder: Path, tmp_path: Path) -> None:
    crop = LiveTransform("hr.Image()", ("hr.RandomCrop((64, 64))",), (), (("RandomCrop(64)", "a view", ""),))
    assert recipe_of(Flipped(folder), tmp_path, crop).view == "hr.RandomCrop((64, 64), flip=0.5)"
    assert recipe_of(Waved(folder), tmp_path, crop).covered == ()


class Padded(Scenes):
    """A picture and its classes as floats: mirrored or not, resized, padded at two sides, and cropped at random.

    The path of the classes follows from that of the picture.
    """

    def __init__(self, folder: Path) -> None:
        self.files = [f"{folder}/streets/{number:02d}_left.png" for number in range(COUNT)]
        for path in (folder / "streets", folder / "labels"):
            path.mkdir(exist_ok=True)
        for number, file in enumerate(self.files):
            Image.open(folder / f"{number}.png").save(file)
            Image.open(folder / f"classes{number}.png").save(folder / f"labels/{number:02d}_ids.png")

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        file = self.files[index]
        pair = [Image.open(file), Image.open(file.replace("streets", "labels").replace("left", "ids"))]
        draws = torch.rand(4).tolist()
        short, (across, down) = int(50 + 60 * draws[0]), draws[1:3]
        size, filters = (short * 5 // 3, short), (Image.Resampling.BILINEAR, Image.Resampling.NEAREST)
        if draws[3] < 0.5:
            pair = [each.transpose(Image.Transpose.FLIP_LEFT_RIGHT) for each in pair]
        pair = [each.resize(size, by) for each, by in zip(pair, filters, strict=True)]
        edge = max(size[0], 64), max(size[1], 64)
        pair = [ImageOps.expand(each, (0, 0, edge[0] - size[0], edge[1] - size[1])) for each in pair]
        left, top = int(across * (edge[0] - 63)), int(down * (edge[1] - 63))
        image, classes = (np.array(each.crop((left, top, left + 64, top + 64)), np.float32) for each in pair)
        return {"image": image / 255, "classes": classes}


def test_a_window_that_reaches_out_of_a_mirrored_picture_is_found(folder: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)  # some pictures are small and some mirrored
    recipe = recipe_of(Padded(folder), tmp_path)
    assert set(recipe.covered) == {"image", "classes"}
    assert recipe.view is not None
    assert recipe.view.startswith("[hr.RandomHorizontalFlip(0.5), hr.RandomScale(")
    assert recipe.view.endswith("hr.RandomCrop((64, 64), pad_if_needed=True)]")
    assert recipe.fields["classes"].startswith("hr.Mask(")


class Numbered(Scenes):
    """A picture, its number in an array, and a number of its class in another."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.kinds = [number * number % 7 for number in range(COUNT)]

    def __getitem__(self, index: int) -> tuple[np.ndarray, ...]:
        return np.array(self.picture(index)), np.array([index]), np.array([self.kinds[index]])


def test_a_number_in_an_array_of_one_keeps_its_shape(folder: Path, tmp_path: Path) -> None:
    script = Numbered(folder)
    recipe = recipe_of(script, tmp_path)
    assert (recipe.covered, recipe.parts) == (("0", "1", "2"), ())
    _, numbers, kinds = first_batch(recipe, tmp_path)
    assert (numbers.dtype, numbers.tolist()) == (torch.int64, [[number] for number in range(COUNT)])
    assert kinds.tolist() == [[kind] for kind in script.kinds]


@pytest.mark.parametrize(("levels", "is_same"), [(1, True), (3, False)])
def test_crops_in_one_array_are_compared_by_the_levels_of_their_channels(levels: int, is_same: bool) -> None:
    state = np.random.default_rng(0)
    pixels = state.integers(0, 252, (8, 10, 3, 64, 64))
    both = []
    for by in (0, levels):
        changed = (pixels + by * (state.random(pixels.shape) < 0.1)) / 255
        values = ((changed - 0.45) / np.array([0.229, 0.224, 0.225])[:, None, None]).astype(np.float32)
        epoch = EpochObservation()
        epoch.add(8, iter([("crops", values), ("key", np.arange(8))]))
        both.append(LoaderObservation("either", (epoch, epoch)))
    assert [one.code for one in judge(*both).differences] == ([] if is_same else ["values"])


class Turned(Scenes):
    """A drawn window of a picture and its classes, which are turned before, by up to 3 degrees either way."""

    inner = (0, 0, WIDTH, HEIGHT)

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        degrees = float(torch.rand(1)) * 6 - 3
        sides = self.inner[3] - self.inner[1], self.inner[2] - self.inner[0]
        top, left = (int(torch.randint(side - 64, ())) for side in sides)
        box = (left, top, left + 64, top + 64)
        image, classes = self.picture(index).crop(self.inner), Image.open(self.classes[index]).crop(self.inner)
        image, classes = image.rotate(degrees, Image.Resampling.BILINEAR).crop(box), classes.rotate(degrees).crop(box)
        return {"image": np.array(image), "classes": np.array(classes, np.int64)}


class TurnedInside(Turned):
    """The same, of a fixed part of each picture."""

    inner = (8, 4, WIDTH - 8, HEIGHT - 4)


@pytest.mark.parametrize(("dataset", "is_cut"), [(Turned, False), (TurnedInside, True)])
def test_windows_of_turned_pictures_are_found(
    dataset: type[Scenes], is_cut: bool, folder: Path, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    recipe = recipe_of(dataset(folder), tmp_path)
    assert set(recipe.covered) == {"image", "classes"}
    assert recipe.view == "hr.RandomCrop((64, 64))"
    assert recipe.augment is not None
    assert 2 < eval(recipe.augment, {"hr": hr}).degrees <= 3
    assert {part.certainty for part in recipe.parts} == {"check"}
    assert any("88 x 144" in part.note for part in recipe.parts) == is_cut


class Grown(Turned):
    """Half of the samples, grown and turned by OpenCV's matrix, as trainers of segmentation do."""

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        import cv2

        by, degrees = 0.9 + float(torch.rand(1)), float(torch.rand(1)) * 20 - 10
        size = (round(WIDTH * by), round(HEIGHT * by))
        turn = cv2.getRotationMatrix2D((size[0] / 2, size[1] / 2), degrees, 1.0)
        image = cv2.resize(np.array(self.picture(index), np.float32), size, interpolation=cv2.INTER_LINEAR)
        classes = np.array(Image.open(self.classes[index]).resize(size, Image.Resampling.NEAREST))
        image = cv2.warpAffine(image, turn, size, flags=cv2.INTER_LINEAR)
        classes = cv2.warpAffine(classes, turn, size, flags=cv2.INTER_NEAREST)
        top, left = (int(torch.randint(side - 64, ())) for side in (size[1], size[0]))
        window = slice(top, top + 64), slice(left, left + 64)
        return {"image": image[window] / 255, "classes": classes[window]}


def test_pictures_that_are_resized_before_they_turn_take_a_random_scale(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("cv2")
    torch.manual_seed(0)
    recipe = recipe_of(Grown(folder), tmp_path)
    assert set(recipe.covered) == {"image", "classes"}
    assert (recipe.view or "").startswith("[hr.RandomScale([")
    assert 5 < eval(recipe.augment or "", {"hr": hr}).degrees <= 10


class Waved(Blurred):
    """A picture that is warped by a mesh."""

    def shown(self, index: int) -> Image.Image:
        from scipy import ndimage

        moved = ndimage.affine_transform(np.array(self.picture(index)), np.diag([0.9 + index / 99, 1.1, 1.0]))
        return Image.fromarray(moved)


def test_the_reason_names_what_turns_a_picture_and_what_the_loader_lacks(folder: Path, tmp_path: Path) -> None:
    """A transform of one part makes no picture, so what it lacks is no reason."""
    alone, chain = ((("Normalize(0.5)", None, "on bytes"),), (("Compose", "", ""), ("Fog()", None, "none here")))
    transforms = [LiveTransform("hr.Image()", (), (), parts) for parts in (alone, chain)]
    recipe = recipe_of(Waved(folder), tmp_path, *transforms)
    assert recipe.covered == ()
    (note,) = [part.note for part in recipe.parts if part.part == "image"]
    assert [name in note for name in ("affine_transform", "Fog", "Normalize")] == [True, True, False]


class Stretched(Scenes):
    """A picture whose values are stretched to their own range."""

    def __getitem__(self, index: int) -> np.ndarray:
        pixels = np.asarray(self.picture(index).resize((64, 48)), np.float32)
        return (pixels - pixels.min()) / (pixels.max() - pixels.min()) * (1 + index / 9)


def test_a_scale_by_the_sample_is_a_reason_of_its_own(folder: Path, tmp_path: Path) -> None:
    recipe = recipe_of(Stretched(folder), tmp_path)
    assert recipe.covered == ()
    (part,) = recipe.parts
    assert "window of its file" in part.note
