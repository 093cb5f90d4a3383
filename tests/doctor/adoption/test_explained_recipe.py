"""A recipe from a look makes the samples that the script's dataset makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import headrace as hr
from headrace.doctor.adoption import LoaderRecipe
from headrace.doctor.adoption.explained_recipe import explained_recipe
from headrace.doctor.adoption.value_fields import structure
from headrace.doctor.adoption.view_codes import argument_of, seen_both_ways, view_code
from headrace.doctor.explain import Box, LeafPlacement
from headrace.doctor.explain.look import read_look
from headrace.doctor.explain.samples import explain_look
from headrace.doctor.probe.look.value_look import look_at_values

COUNT = 12
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pairs")
    for number in range(COUNT):
        state = np.random.default_rng(number)
        height, width = (int(state.integers(90, 160)) for _ in range(2))
        coarse = state.integers(0, 256, (height // 6, width // 6, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC).save(made / f"{number}.png")
        labels = np.kron(state.integers(0, 4, (height // 10 + 1, width // 10 + 1)), np.ones((10, 10)))[:height, :width]
        Image.fromarray(labels.astype(np.uint8)).save(made / f"labels{number}.png")
        Image.fromarray(state.integers(1, 60_000, (height, width), dtype=np.uint16)).save(made / f"depth{number}.png")
    return made


class Scenes:
    """Pictures, labels and depth of files, without a draw."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names = [str(number) for number in range(COUNT)]
        self.targets = [number % 3 for number in range(COUNT)]
        self.captions = [f"scene {number}" for number in range(COUNT)]

    def __len__(self) -> int:
        return COUNT

    def _open(self, index: int, prefix: str = "") -> Image.Image:
        return Image.open(f"{self.folder}/{prefix}{self.names[index]}.png")

    def __getitem__(self, index: int) -> dict[str, Any]:
        picture = self._open(index).convert("RGB").resize((64, 48), Image.Resampling.BILINEAR)
        pixels = (np.asarray(picture).astype(np.float32) / 255 - MEAN) / STD
        labels = np.array(self._open(index, "labels").resize((64, 48), Image.Resampling.NEAREST)).astype(np.int64)
        labels[labels == 3] = 255
        depth = np.asarray(self._open(index, "depth"))
        rows, columns = ((np.arange(out) + 0.5) * size / out for out, size in zip((48, 64), depth.shape, strict=True))
        scaled = depth[np.ix_(rows.astype(int), columns.astype(int))]
        return {
            "image": torch.from_numpy(pixels).permute(2, 0, 1).float(),
            "labels": torch.from_numpy(labels),
            "depth": torch.from_numpy(scaled.astype(np.float32) * 0.001)[None],
            "target": self.targets[index],
            "caption": self.captions[index],
        }


class Depths(Scenes):
    """Metres up to 50, which of them are valid, and the same by the quantiles of each."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        whole = np.array(self._open(index, "depth")).astype(np.float32) * np.float32(0.001)
        top, left = (round((side - 90) / 2) for side in whole.shape)
        depth = whole[top : top + 90, left : left + 90]
        low, high = np.quantile(whole[whole <= 50], [0.02, 0.98])
        valid = depth <= 50
        scaled = np.where(valid, ((depth - low) / (high - low)).clip(0, 1), 0)
        return {"depth": np.where(valid, depth, 0), "valid": valid, "scaled": scaled.astype(np.float32)}


class Trainer(Scenes):
    """Bytes and floats of one picture, one depth twice, and pixels within bounds: flipped, then resized by torch."""

    def __init__(self, folder: Path, *, bounds: bool = True) -> None:
        super().__init__(folder)
        if bounds:
            self.min_depth, self.max_depth = 1e-5, 65.0

    def __getitem__(self, index: int) -> dict[str, Any]:
        picture = torch.from_numpy(np.array(self._open(index).convert("RGB"))).permute(2, 0, 1)
        depth = torch.from_numpy(np.array(self._open(index, "depth")).astype(np.float32) / 1000)[None]
        flips = [-1] if torch.rand(1) < 0.5 else []
        made = [each.flip(flips)[None].float() for each in (picture, depth)]
        rgb, metres = (torch.nn.functional.interpolate(each, (50, 65), mode="nearest-exact")[0] for each in made)
        valid = (metres > 1e-5) & (metres < 65.0)
        return {"valid": valid, "rgb": rgb.int(), "half": rgb / 127.5 - 1, "metres": metres, "filled": metres.clone()}


class Mirrored(Scenes):
    """Pictures whose flips alternate by repetition, so that an explanation meets all samples flipped, or none."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.made = dict[int, int]()

    def __getitem__(self, index: int) -> Any:
        self.made[index] = making = self.made.get(index, -1) + 1
        picture = np.array(self._open(index).convert("RGB").resize((64, 48), Image.Resampling.BILINEAR))
        is_flipped = making % 2 == list(self.made).index(index) % 2
        return np.ascontiguousarray(picture[:, ::-1] if is_flipped else picture), self.targets[index]


class Pairs(Scenes):
    """Tuples of a centre crop of bytes, last channel last, and a class."""

    def __getitem__(self, index: int) -> Any:
        picture = self._open(index).convert("RGB")
        width, height = picture.size
        left, top = round((width - 80) / 2), round((height - 60) / 2)
        return np.array(picture.crop((left, top, left + 80, top + 60))), self.targets[index]


class Unpaired(Scenes):
    """Two pictures: one of the sample's own file, one of a file that is drawn."""

    def __getitem__(self, index: int) -> Any:
        names = [index, int(torch.randint(COUNT, ()))]
        return [np.array(self._open(each).convert("RGB").resize((64, 48))) for each in names]


class Stacked(Scenes):
    """Two crops of a picture in one array."""

    def __getitem__(self, index: int) -> Any:
        picture = self._open(index).convert("RGB")
        return np.stack([np.array(picture.crop((at, 0, at + 60, 80))) for at in (0, 20)])


def recipe_of(dataset: Scenes, folder: Path) -> LoaderRecipe:
    look_at_values(torch.utils.data.DataLoader(dataset), str(folder / "look"))
    return explained_recipe(*seen_both_ways(look := read_look(folder / "look"), explain_look(look)))


def batches(recipe: LoaderRecipe, folder: Path) -> list[Any]:
    pq.write_table(pa.table(dict(recipe.columns)), folder / "manifest.parquet")
    data = hr.open(folder / "manifest.parquet", root=recipe.root)
    space = {"hr": hr}
    fields = {name: eval(code, space) for name, code in recipe.fields.items()}
    loader = hr.Loader(data, fields, view=eval(recipe.view or "None", space), batch_size=4, shuffle=False)
    return [eval(recipe.output, {"batch": batch, "torch": torch}) for batch in loader]


@pytest.mark.long
def test_a_recipe_makes_every_leaf(folder: Path, tmp_path: Path) -> None:
    dataset = Scenes(folder)
    recipe = recipe_of(dataset, tmp_path)
    assert (recipe.left, recipe.parts) == ({}, ())
    assert recipe.view == "hr.Resize((48, 64))"
    for number, batch in enumerate(batches(recipe, tmp_path)):
        expected = torch.utils.data.default_collate([dataset[number * 4 + place] for place in range(4)])
        assert list(batch) == list(expected)
        assert (batch["image"] - expected["image"]).abs().max() <= 1.01 / 255 / min(STD)
        assert torch.equal(batch["labels"], expected["labels"])
        assert torch.allclose(batch["depth"], expected["depth"])
        assert torch.equal(torch.as_tensor(batch["target"]), expected["target"])
        assert list(batch["caption"]) == expected["caption"]


def test_structure_layout_and_crop_are_the_scripts(folder: Path, tmp_path: Path) -> None:
    dataset = Pairs(folder)
    recipe = recipe_of(dataset, tmp_path)
    assert recipe.left == {}
    assert recipe.view == "hr.CenterCrop((60, 80))"
    for number, (images, targets) in enumerate(batches(recipe, tmp_path)):
        expected = torch.utils.data.default_collate([dataset[number * 4 + place] for place in range(4)])
        assert images.shape == expected[0].shape
        assert (images.int() - expected[0].int()).abs().max() <= 1
        assert torch.equal(torch.as_tensor(targets), expected[1])


def test_samples_that_are_all_flipped_by_chance_are_looked_at_again(folder: Path, tmp_path: Path) -> None:
    recipe = recipe_of(Mirrored(folder), tmp_path)
    assert (recipe.left, recipe.view) == ({}, "hr.Resize((48, 64), flip=0.5)")
    look = read_look(tmp_path / "look")
    first = explain_look(look)
    assert all(one.is_flipped for one in first[0,].by.placements)
    assert list(explained_recipe(look, first).left) == ["0"]


def test_depth_has_bounds_validity_and_quantiles(folder: Path, tmp_path: Path) -> None:
    dataset = Depths(folder)
    recipe = recipe_of(dataset, tmp_path)
    assert recipe.left == {}
    assert {part.certainty for part in recipe.parts} == {"check"}
    for number, batch in enumerate(batches(recipe, tmp_path)):
        for place in range(4):
            sample = dataset[number * 4 + place]
            assert np.allclose(batch["depth"][place], sample["depth"], atol=2e-3)
            assert (np.asarray(batch["valid"][place]) == sample["valid"]).mean() > 0.999
            assert np.abs(np.asarray(batch["scaled"][place]) - sample["scaled"]).max() < 0.01


@pytest.mark.parametrize(("dataset", "leaf", "named"), [(Unpaired, "1", ".png"), (Stacked, "", "2 pictures")])
def test_a_reason_names_what_leaves_show(
    dataset: type[Scenes], leaf: str, named: str, folder: Path, tmp_path: Path
) -> None:
    """A file that is drawn, which hides that the sample's own file may be drawn too, and crops in one array."""
    recipe = recipe_of(dataset(folder), tmp_path)
    assert leaf in recipe.left
    assert named in next(part.note for part in recipe.parts if part.part == leaf)


def test_a_search_without_time_is_no_evidence_against_the_files(folder: Path, tmp_path: Path) -> None:
    whole = recipe_of(Pairs(folder), tmp_path)
    look = read_look(tmp_path / "look")
    found = explain_look(look, 0.0)
    assert (found[0,].by, found[0,].is_cut) == (None, True)
    notes = [part.note for part in explained_recipe(look, found).parts if part.part == "0"]
    assert "0" in whole.covered
    assert "time" in notes[0]


def test_what_is_left_leaves_its_place_in_a_list() -> None:
    codes = {(1, "image"): "one", (2, 1): "two"}
    assert structure(codes) == "[None, {'image': one}, [None, two]]"


WHOLE = (100, 200, 3)


@pytest.mark.parametrize(
    ("placements", "size", "view"),
    [
        (
            [LeafPlacement(Box(0, 0, 100, 200), (64, 64), (at, at)) for at in (0, 7)],
            (56, 56),
            "[hr.Resize((64, 64)), hr.RandomCrop((56, 56))]",
        ),
        (
            [LeafPlacement(Box(0, 0, 100, 200), (50, 60), (0, 0), is_upside_down=turned) for turned in (False, True)],
            (50, 60),
            "[hr.Resize((50, 60)), hr.RandomVerticalFlip(0.5)]",
        ),
        (
            [LeafPlacement(Box(0, 0, 100, 200), (60, 120), (2, 32))] * 2,
            (56, 56),
            "[hr.Resize(60), hr.CenterCrop((56, 56))]",
        ),
        (
            [LeafPlacement(Box(0, 0, 100, 200), (60, 120), (0, left), left == 7) for left in (3, 7)],
            (56, 56),
            "[hr.Resize(60), hr.RandomCrop((56, 56), flip=0.5)]",
        ),
        (
            [LeafPlacement(Box(3, left, 50, 50), (50, 50), (0, 0)) for left in (3, 9)],
            (50, 50),
            "hr.RandomCrop((50, 50))",
        ),
        (
            [LeafPlacement(Box(3, left, 50, 50), (32, 32), (0, 0)) for left in (3, 9)],
            (32, 32),
            "[hr.RandomCrop((50, 50)), hr.Resize((32, 32))]",
        ),
        (
            [LeafPlacement(Box(0, 0, side, 2 * side), (32, 32), (0, 0)) for side in (50, 80)],
            (32, 32),
            "hr.RandomResizedCrop((32, 32), scale=(0.25, 0.64), ratio=(2.0, 2.0))",
        ),
        (
            [LeafPlacement(Box(0, 0, 100, 200), (short, 2 * short), (0, 5)) for short in (60, 80)],
            (50, 50),
            "[hr.RandomScale([60, 80]), hr.RandomCrop((50, 50))]",
        ),
    ],
    ids=[
        "to one size, then random",
        "upside down",
        "centre",
        "random after resize",
        "random",
        "random, then resize",
        "random and resized",
        "random scale",
    ],
)
def test_views_follow_from_placements(placements: list[LeafPlacement], size: tuple[int, int], view: str) -> None:
    given = placements, [(*size, 3)] * len(placements), [WHOLE] * len(placements), "HWC"
    assert view_code(*given, is_random=True) == view
    assert view_code(*given, is_random=False) == (None if "Random" in view else view)


@pytest.mark.parametrize(("is_flipped", "view"), [(False, "None"), (True, "[hr.RandomHorizontalFlip(0.5)]")])
def test_whole_files_of_several_sizes_have_no_view(is_flipped: bool, view: str) -> None:
    sizes = [(100, 200), (90, 60), (90, 60)]
    flips = False, is_flipped, False
    wholes = [LeafPlacement(Box(0, 0, *size), size, (0, 0), turn) for size, turn in zip(sizes, flips, strict=True)]
    assert view_code(wholes, [(3, *size) for size in sizes], sizes, "CHW", is_random=True) == view
    cut = [LeafPlacement(Box(0, 0, 80, 200), (80, 200), (0, 0)), *wholes[1:]]
    assert view_code(cut, [(3, *one.size) for one in cut], sizes, "CHW", is_random=True) is None


def test_windows_that_begin_at_one_place_are_not_drawn() -> None:
    halves = [LeafPlacement(Box(0, 0, 100, 100), (100, 100), (0, 0), flipped) for flipped in (False, True) * 3]
    assert view_code(halves, [(100, 100, 3)] * 6, [WHOLE] * 6, "HWC", is_random=True) is None


def test_windows_that_reach_out_of_the_picture_are_padded_if_the_fill_is_the_loaders() -> None:
    wholes = [LeafPlacement(Box(0, 0, 100, 200), (short, 2 * short), (min(0, short - 50), 7)) for short in (40, 80)]
    given = wholes, [(50, 50, 3)] * 2, [WHOLE] * 2, "HWC"
    padded = "[hr.RandomScale([40, 80]), hr.RandomCrop((50, 50), pad_if_needed=True)]"
    assert view_code(*given, is_random=True, pads=True) == padded
    assert view_code(*given, is_random=True) is None


class Flagged(Scenes):
    """A picture, and a list of truths as numbers."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.flags = [[number % 2 == 0, number % 3 == 0] for number in range(COUNT)]

    def __getitem__(self, index: int) -> Any:
        return np.array(self._open(index).convert("RGB").resize((40, 40))), torch.FloatTensor(self.flags[index])


def test_a_list_of_truths_becomes_numbers(folder: Path, tmp_path: Path) -> None:
    dataset = Flagged(folder)
    recipe = recipe_of(dataset, tmp_path)
    assert recipe.covered == ("0", "1")
    assert batches(recipe, tmp_path)[0][1][3].tolist() == dataset[3][1].tolist()


class Strided(Scenes):
    """A picture that is bilinear without antialiasing, and one that Pillow makes bicubic."""

    def __getitem__(self, index: int) -> Any:
        pixels = torch.from_numpy(np.array(self._open(index).convert("RGB"))).permute(2, 0, 1)[None].float()
        size = (40, 40)
        strided = torch.nn.functional.interpolate(pixels, size, mode="bilinear", align_corners=False)[0] / 255
        return strided, np.array(self._open(index).convert("RGB").resize(size, Image.Resampling.BICUBIC))


def test_filters_of_the_loader_make_the_scripts_pixels(folder: Path, tmp_path: Path) -> None:
    dataset = Strided(folder)
    recipe = recipe_of(dataset, tmp_path)
    assert [argument_of(code, "filter") for code in recipe.fields.values()] == ["'linear'", "'bicubic'"]
    assert not recipe.parts
    linear, bicubic = batches(recipe, tmp_path)[0]
    for number in range(len(linear)):
        strided, resized = dataset[number]
        assert (linear[number] - strided).abs().max() <= 1.5 / 255
        assert np.abs(bicubic[number].numpy().astype(int) - resized.astype(int)).max() <= 1


class Sharp(Scenes):
    """A picture that OpenCV makes bicubic, whose kernel is another one."""

    def __getitem__(self, index: int) -> Any:
        pixels = np.array(self._open(index).convert("RGB"))
        return cv2.resize(pixels, (40, 40), interpolation=cv2.INTER_CUBIC)


def test_a_filter_that_the_loader_has_not_is_to_be_checked(folder: Path, tmp_path: Path) -> None:
    (part,) = recipe_of(Sharp(folder), tmp_path).parts
    assert part.certainty == "check"
    assert "'cubic'" in part.note


class Degraded(Scenes):
    """A drawn window of each picture, and before it the same at half the size, made by a filter."""

    filter = Image.Resampling.BICUBIC

    def __getitem__(self, index: int) -> Any:
        picture = self._open(index).convert("RGB")
        left, top = (int(torch.randint(0, side - 64, ())) for side in picture.size)
        window = picture.crop((left, top, left + 64, top + 64))
        return np.array(window.resize((32, 32), self.filter)), np.array(window)


@pytest.mark.long
def test_a_drawn_picture_at_another_size_is_made_of_the_other(folder: Path, tmp_path: Path) -> None:
    recipe = recipe_of(Degraded(folder), tmp_path)
    assert (recipe.covered, recipe.parts, recipe.view) == (("0", "1"), (), "hr.RandomCrop((64, 64))")
    for small, large in batches(recipe, tmp_path):
        expected = [Image.fromarray(each).resize((32, 32), Image.Resampling.BICUBIC) for each in large.numpy()]
        assert (small.int() - torch.from_numpy(np.array(expected)).int()).abs().max() <= 1


class Noised(Degraded):
    """A drawn window, and its like with noise, which nothing explains."""

    def __getitem__(self, index: int) -> Any:
        window = super().__getitem__(index)[1] / np.float32(255)
        return window, window + np.random.default_rng().normal(0, 0.5, window.shape).astype(np.float32)


def test_a_drawn_leaf_is_left_beside_one_that_is_not_explained(folder: Path, tmp_path: Path) -> None:
    recipe = recipe_of(Noised(folder), tmp_path)
    assert (recipe.covered, recipe.fields) == ((), {})


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures and depth of noise, 104 x 80: at the scale 1.6, every fifth centre lies between two pixels."""
    made = tmp_path_factory.mktemp("noise")
    for number in range(COUNT):
        state = np.random.default_rng(number)
        Image.fromarray(state.integers(0, 256, (80, 104, 3), dtype=np.uint8)).save(made / f"{number}.png")
        Image.fromarray(state.integers(1, 60_000, (80, 104), dtype=np.uint16)).save(made / f"depth{number}.png")
    return made


def test_leaves_of_one_file_are_one_column_and_equal_leaves_one_field(noise: Path, tmp_path: Path) -> None:
    recipe = recipe_of(Trainer(noise), tmp_path)
    assert set(recipe.covered) == {"valid", "rgb", "half", "metres", "filled"}
    assert recipe.view == "[hr.RandomHorizontalFlip(0.5), hr.Resize((50, 65))]"
    assert set(recipe.fields) == {"rgb", "half", "metres", "valid"}
    depth = eval(recipe.fields["valid"], {"hr": hr})
    assert (depth.near, depth.far, depth.valid) == (1e-5, 65.0, True)
    assert len(recipe.columns) == 2
    assert all(argument_of(code, "filter") == "'nearest-exact'" for code in recipe.fields.values())
    pixels = torch.zeros(3, dtype=torch.uint8)
    valid, metres = torch.tensor([False, True]), torch.ones(2)
    batch = {"metres": metres, "valid_valid": valid, "rgb": pixels, "half": pixels}
    made = eval(recipe.output, {"batch": batch})
    assert made["valid"] is valid
    assert made["rgb"].dtype == torch.int32
    assert made["filled"] is not made["metres"]


class Picked(Scenes):
    """Bytes and depth as OpenCV's INTER_NEAREST resizes them."""

    def __getitem__(self, index: int) -> Any:
        sources = np.array(self._open(index)), np.array(self._open(index, "depth")).astype(np.float32)
        return tuple(cv2.resize(each, (65, 50), interpolation=cv2.INTER_NEAREST) for each in sources)


def test_opencvs_nearest_is_a_field_without_remarks(noise: Path, tmp_path: Path) -> None:
    recipe = recipe_of(Picked(noise), tmp_path)
    assert [argument_of(code, "filter") for code in recipe.fields.values()] == ["'nearest-opencv'"] * 2
    assert not recipe.left
    assert not [part for part in recipe.parts if part.certainty != "exact"]


def test_a_mask_that_is_true_wherever_it_was_seen_needs_the_datasets_bounds(noise: Path, tmp_path: Path) -> None:
    recipe = recipe_of(Trainer(noise, bounds=False), tmp_path)
    assert set(recipe.left) == {"valid"}
    assert set(recipe.covered) == {"rgb", "half", "metres", "filled"}
