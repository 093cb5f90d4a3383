"""Translation of torchvision's, timm's and albumentations' transforms, by classes that stand in for theirs.

test_real_translation.py has the real ones, where they are installed.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from loader_data import write_folder

import headrace as hr
from headrace.augment import compile_augment
from headrace.errors import UsageError

TIMM = json.loads((Path(__file__).parents[1] / "augment/policy_tables.json").read_text())["timm"]


def part(name: str, module: str = "torchvision.transforms.v2", **attributes: Any) -> Any:
    """An object with the names that the translation reads."""
    made = type(name, (), {"__module__": module, "__repr__": lambda self: f"{name}()"})()
    vars(made).update(attributes)
    return made


def compose(*parts: Any) -> Any:
    return part("Compose", transforms=list(parts))


CROP = part("RandomResizedCrop", size=(224, 224), scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3), interpolation="bilinear")
FLIP, UPSIDE_DOWN = part("RandomHorizontalFlip", p=0.5), part("RandomVerticalFlip", p=0.3)
JITTER = part("ColorJitter", brightness=(0.6, 1.4), contrast=(0.6, 1.4), saturation=(0.6, 1.4), hue=None)
TO_TENSOR, TO_IMAGE = part("ToTensor"), part("ToImage")
NORMALIZE = part("Normalize", mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
ERASING = part("RandomErasing", p=0.25, scale=(0.02, 0.33), ratio=(0.3, 3.3), value=[0.0])
MAPPED = {"interpolation": SimpleNamespace(value="nearest"), "fill": 0}
RAND_AUGMENT = part("RandAugment", num_ops=2, magnitude=9, num_magnitude_bins=31, **MAPPED)


def rotation(low: float, high: float) -> Any:
    return part("RandomRotation", degrees=[low, high], expand=False, center=None, **MAPPED)


def to_dtype(name: str, scale: bool) -> Any:
    return part("ToDtype", dtype=f"torch.{name}", scale=scale)


def test_a_training_transform_becomes_field_view_and_augmentations() -> None:
    found = hr.from_torchvision(compose(CROP, FLIP, compose(JITTER, RAND_AUGMENT), TO_TENSOR, NORMALIZE, ERASING))
    assert found.image == hr.Image(dtype="float32", normalize=hr.IMAGENET)
    assert found.view == (hr.RandomResizedCrop(224), hr.RandomHorizontalFlip(0.5))
    assert found.augment == (
        hr.ColorJitter((0.6, 1.4), (0.6, 1.4), (0.6, 1.4)),
        hr.RandAugment(2, 9),
        hr.RandomErasing(0.25, value=0.0),
    )
    assert found.exact
    assert [each.becomes for each in found.parts][-2:] == [
        "Image(normalize=hr.IMAGENET)",
        "augment: hr.RandomErasing(p=0.25)",
    ]
    assert str(found).startswith("exact\n  RandomResizedCrop()\n    view: hr.RandomResizedCrop(224)")
    given = eval(f"dict({found.code})", {"hr": hr})
    assert given["fields"] == {"image": found.image}
    assert (tuple(given["view"]), tuple(given["augment"])) == (found.view, found.augment)


def test_what_was_translated_runs(tmp_path: Path) -> None:
    found = hr.from_torchvision([CROP, FLIP, JITTER, TO_TENSOR, NORMALIZE, ERASING])
    fields = {"image": found.image, "label": hr.Label()}
    loader = hr.Loader(
        write_folder(tmp_path, 6), fields, view=found.view, augment=found.augment, batch_size=3, output="numpy"
    )
    shapes = [(batch["image"].shape, batch["image"].dtype) for batch in loader]
    assert shapes == [((3, 3, 224, 224), np.float32)] * 2
    del loader


def test_a_flip_moves_before_what_it_commutes_with() -> None:
    even = part("RandomApply", transforms=[JITTER, rotation(-30, 30)], p=0.8)
    found = hr.from_torchvision([CROP, JITTER, even, ERASING, FLIP, UPSIDE_DOWN])
    assert found.view == (hr.RandomResizedCrop(224), hr.RandomHorizontalFlip(0.5), hr.RandomVerticalFlip(0.3))
    assert found.exact
    for uneven, name in ((RAND_AUGMENT, "RandAugment"), (rotation(0, 30), "RandomRotation")):
        (unknown,) = hr.from_torchvision([CROP, uneven, FLIP], partial=True).unknown
        assert unknown.part == "RandomHorizontalFlip()"
        assert f"it comes after {name}" in unknown.note


def test_a_crop_does_not_move_before_pixels_are_touched() -> None:
    for before, name in ((JITTER, "ColorJitter"), (ERASING, "RandomErasing")):
        with pytest.raises(UsageError) as error:
            hr.from_torchvision([before, CROP])
        assert f"RandomResizedCrop(): it comes after {name}" in str(error.value)


@pytest.mark.parametrize(
    ("parts", "image"),
    [
        ([TO_IMAGE], hr.Image()),
        ([TO_TENSOR], hr.Image(dtype="float32")),
        ([TO_IMAGE, to_dtype("float16", True)], hr.Image(dtype="float16")),
        ([to_dtype("float32", False)], hr.Image(dtype="float32", normalize=hr.Normalize((0.0,) * 3, (1 / 255,) * 3))),
        (
            [to_dtype("float32", False), part("Normalize", mean=[127.5], std=[51.0])],
            hr.Image(dtype="float32", normalize=hr.Normalize((0.5,) * 3, (0.2,) * 3)),
        ),
        ([part("Grayscale", num_output_channels=1), TO_TENSOR], hr.Image(dtype="float32", mode="L")),
        (
            [part("ConvertImageDtype", dtype="torch.float32"), NORMALIZE],
            hr.Image(dtype="float32", normalize=hr.IMAGENET),
        ),
        ([part("Resize", size=[64], interpolation=0, max_size=None)], hr.Image(filter="nearest")),
        ([part("Resize", size=[64], interpolation=3, max_size=None)], hr.Image(filter="bicubic")),
        ([part("Resize", size=[64], interpolation="lanczos", max_size=None)], hr.Image(filter="lanczos")),
    ],
)
def test_types_and_values(parts: list[Any], image: hr.Image) -> None:
    found = hr.from_torchvision(parts)
    assert found.image == image
    assert found.augment is None


def test_an_erasure_keeps_its_value_through_what_follows() -> None:
    grey = part("RandomErasing", p=0.5, scale=(0.02, 0.33), ratio=(0.3, 3.3), value=(0.5, 0.5, 0.5))
    found = hr.from_torchvision([TO_TENSOR, grey, NORMALIZE])
    assert found.augment is not None
    value = found.augment[0].value
    assert value == pytest.approx([(0.5 - 0.485) / 0.229, (0.5 - 0.456) / 0.224, (0.5 - 0.406) / 0.225])
    noise = part("RandomErasing", p=0.5, scale=(0.02, 0.33), ratio=(0.3, 3.3), value=None)
    assert hr.from_torchvision([TO_TENSOR, NORMALIZE, noise]).augment == (hr.RandomErasing(0.5, value="random"),)
    with pytest.raises(UsageError, match="put it last"):
        hr.from_torchvision([TO_TENSOR, noise, NORMALIZE])


def test_padding_and_fill() -> None:
    crop = {"size": (32, 32), "pad_if_needed": False, "fill": 0, "padding_mode": "constant"}
    pad = part("Pad", padding=[4], fill=[1, 2, 3], padding_mode="constant")
    found = hr.from_torchvision([pad, part("RandomCrop", padding=None, **crop)])
    assert found.view == (hr.RandomCrop(32, padding=(4, 4, 4, 4), fill=(1, 2, 3)),)
    grey = rotation(-5, 5)
    grey.fill = 0.5
    for parts, why in (
        ([part("RandomCrop", padding=4, **crop | {"padding_mode": "reflect"})], "padding_mode 'reflect'"),
        ([pad, CROP], "before RandomCrop only"),
        ([TO_TENSOR, NORMALIZE, part("RandomCrop", padding=4, **crop)], "normalized value"),
        ([TO_TENSOR, grey], "no whole number"),
        ([TO_TENSOR, NORMALIZE, JITTER], "put it before Normalize"),
    ):
        (unknown, *_) = hr.from_torchvision(parts, partial=True).unknown
        assert why in unknown.note
    white = rotation(-5, 5)
    white.fill = 1.0
    assert hr.from_torchvision([TO_TENSOR, white]).augment == (hr.RandomRotation((-5, 5), "nearest", fill=255),)


def test_solarize_after_conversion_has_its_threshold_on_bytes() -> None:
    solarize = part("RandomSolarize", threshold=0.5, p=0.2)
    assert hr.from_torchvision([TO_TENSOR, solarize]).augment == (hr.RandomSolarize(127.5, 0.2),)


def test_combinators_hold_translated_parts() -> None:
    invert, own = part("RandomInvert", p=0.5), part("Wobble", "train")
    choice = part("RandomChoice", transforms=[JITTER, compose(invert, JITTER)], p=[0.25, 0.75])
    jitter = hr.ColorJitter((0.6, 1.4), (0.6, 1.4), (0.6, 1.4))
    both = hr.RandomApply([hr.RandomInvert(0.5), jitter], 1.0)
    assert hr.from_torchvision(choice).augment == (hr.RandomChoice([jitter, both], [0.25, 0.75]),)
    for inner in (own, CROP):
        (unknown,) = hr.from_torchvision(part("RandomOrder", transforms=[inner]), partial=True).unknown
        assert f"{type(inner).__name__}() inside of it" in unknown.note


def test_mixings_are_for_the_batch() -> None:
    mix_up, cut_mix = part("MixUp", alpha=0.2, num_classes=10), part("CutMix", alpha=1.0, num_classes=10)
    found = hr.from_torchvision(mix_up)
    assert (found.view, found.augment, found.batch) == (None, None, hr.MixUp(alpha=0.2, num_classes=10))
    assert found.code.endswith("batch=hr.MixUp(alpha=0.2, num_classes=10)")
    assert not found.exact, "pairs are others"
    chosen = hr.from_torchvision(part("RandomChoice", transforms=[mix_up, cut_mix], p=[0.3, 0.7])).batch
    assert chosen == hr.RandomChoice([hr.MixUp(alpha=0.2, num_classes=10), hr.CutMix(num_classes=10)], [0.3, 0.7])


def test_what_cannot_be_taken_is_named_with_its_reason() -> None:
    def mine(image: object) -> object:
        return image

    parts = [
        CROP,
        mine,
        part("Lambda", lambd=mine),
        part("JPEG", quality=50),
        part("ScaleJitter"),
        part("ColorJitter", "my"),
    ]
    found = hr.from_torchvision(parts, partial=True)
    assert found.view == (hr.RandomResizedCrop(224),)
    reasons = {each.part: each.note for each in found.unknown}
    assert len(reasons) == 5
    assert "function or class of your own" in reasons["ColorJitter()"]
    assert "Buckets" in reasons["ScaleJitter()"]
    with pytest.raises(UsageError) as error:
        hr.from_torchvision(parts)
    assert "got 5 that cannot be taken" in str(error.value)
    assert all(f"\n  {name}: {why}" in str(error.value) for name, why in reasons.items())


def test_filters_that_differ_are_noted() -> None:
    def resize(interpolation: object, antialias: bool = True) -> Any:
        return part("Resize", size=256, interpolation=interpolation, max_size=None, antialias=antialias)

    assert hr.from_torchvision(resize(2)).exact
    for made, note in (
        (resize(SimpleNamespace(value="box")), "not by box"),
        (resize("bilinear", False), "tensors would not be"),
        (resize("bicubic", False), "tensors would not be"),
    ):
        (said,) = hr.from_torchvision(made).notes
        assert note in said


def test_crops_of_evaluation_are_the_fields_view() -> None:
    resize = part("Resize", size=256, interpolation="bilinear", max_size=None)
    found = hr.from_torchvision([resize, part("TenCrop", size=(224, 224), vertical_flip=False)])
    assert found.image == hr.Image(view=(hr.Resize(256), hr.TenCrop(224)))
    assert found.view is None


def timm_object(text: str) -> Any:
    """timm's object for a string, made of what policy_tables.json says."""
    made = TIMM[text]

    def operation(given: list[Any]) -> Any:
        name, p, magnitude, deviation, most = given
        return SimpleNamespace(
            name=name,
            prob=p,
            magnitude=magnitude,
            magnitude_std=math.inf if deviation == 1000 else deviation,
            magnitude_max=None if most == 10 else most,
            hparams={"translate_pct": 0.45},
            kwargs={"fillcolor": (124, 116, 104), "resample": 2},
        )

    module = "timm.data.auto_augment"
    if "lines" in made:
        return part("AutoAugment", module, policy=[[operation(each) for each in line] for line in made["lines"]])
    ops = [operation(each) for each in made["ops"]]
    if "mix" in made:
        width, depth, alpha = made["mix"]
        return part("AugMixAugment", module, ops=ops, width=width, depth=depth, alpha=alpha)
    return part("RandAugment", module, ops=ops, num_layers=made["count"], choice_weights=made["weights"])


@pytest.mark.parametrize("text", [text for text in TIMM if text not in ("version", "levels")])
def test_timms_objects_are_read_back_to_their_strings(text: str) -> None:
    (policy,) = hr.from_timm(timm_object(text)).augment or ()
    program, same = compile_augment("augment", policy), compile_augment("augment", hr.TimmPolicy(text, translate=0.45))
    assert program is not None
    assert same is not None
    assert np.array_equal(program.table, same.table)


def test_timms_own_parts() -> None:
    crop = part("RandomResizedCropAndInterpolation", "timm.data.transforms", **vars(CROP))
    crop.interpolation = ("bilinear", "bicubic")
    erasing = part(
        "RandomErasing",
        "timm.data.random_erasing",
        probability=0.25,
        min_area=0.02,
        max_area=1 / 3,
        log_aspect_ratio=(math.log(0.3), -math.log(0.3)),
        min_count=1,
        max_count=1,
        mode="pixel",
    )
    found = hr.from_timm((compose(crop, FLIP), compose(part("MaybeToTensor", "timm.data"), NORMALIZE), erasing))
    assert found.image == hr.Image(dtype="float32", normalize=hr.IMAGENET)
    assert found.augment is not None
    erased = found.augment[0]
    assert (erased.p, erased.value, erased.ratio) == (0.25, "random", pytest.approx((0.3, 1 / 0.3)))
    assert len(found.notes) == 1
    fit = {"random_scale_prob": 0.0, "random_aspect_prob": 0.0, "interpolation": "bilinear"}
    keep = part("ResizeKeepRatio", "timm.data.transforms", size=(224, 224), longest=1.0, **fit)
    pad = part("CenterCropOrPad", "timm.data.transforms", size=(224, 224), fill=[9, 9, 9], padding_mode="constant")
    assert hr.from_timm([keep, pad]).view == (hr.Letterbox(224, fill=(9, 9, 9)),)
    erasing.mode, erasing.max_count = "rand", 2
    (several,) = hr.from_timm(erasing).augment or ()
    assert (several.value, several.count) == ("random_color", (1, 2))


def test_parts_of_open_clip() -> None:
    parts = [CROP, part("MaybeConvertMode", "open_clip.transform"), part("MaybeToTensor", "open_clip.transform")]
    found = hr.from_torchvision(compose(*parts, NORMALIZE))
    assert found.exact
    assert found.image == hr.Image(dtype="float32", normalize=hr.IMAGENET)
    assert hr.from_torchvision(compose(CROP, part("MaybeToTensor", "mine")), partial=True).unknown


def album(name: str, p: float = 1.0, **attributes: Any) -> Any:
    return part(name, "albumentations.augmentations", p=p, **attributes)


def test_albumentations() -> None:
    jitter = album("ColorJitter", 0.8, brightness=(0.6, 1.4), contrast=(1, 1), saturation=(1, 1), hue=(0, 0))
    one_of = album("OneOf", 0.3, transforms=[album("InvertImg", 0.5), album("Posterize", 1.0, num_bits=(3, 4))])
    found = hr.from_albumentations(
        album(
            "Compose",
            transforms=[
                album("CenterCrop", height=64, width=48, pad_if_needed=False),
                album("HorizontalFlip", 0.5),
                jitter,
                album("RandomBrightnessContrast", 0.5, brightness_limit=(0.0, 0.0), contrast_limit=(-0.2, 0.2)),
                album("ToGray", 0.2, method="weighted_average", num_output_channels=3),
                one_of,
                album("Normalize", max_pixel_value=255.0, normalization="standard", **vars(NORMALIZE)),
                album("ToTensorV2"),
            ],
        )
    )
    assert found.exact
    assert found.view == (hr.CenterCrop((64, 48)), hr.RandomHorizontalFlip(0.5))
    assert found.image == hr.Image(dtype="float32", normalize=hr.IMAGENET)
    posterize = hr.RandomChoice([hr.RandomPosterize(3, 1.0), hr.RandomPosterize(4, 1.0)])
    assert found.augment == (
        hr.RandomApply([hr.ColorJitter((0.6, 1.4), (1, 1), (1, 1), (0, 0))], 0.8),
        hr.RandomApply([hr.ColorJitter((0.8, 1.2))], 0.5),
        hr.RandomGrayscale(0.2),
        hr.RandomApply([hr.RandomChoice([hr.RandomInvert(1.0), posterize], [0.5, 1.0])], 0.3),
    )


def test_albumentations_geometry() -> None:
    drawn = {"interpolation": 1, "border_mode": 0, "fill": 114.0}
    keep = album("LongestMaxSize", max_size=640, interpolation=1)
    pad = album("PadIfNeeded", min_height=640, min_width=640, position="center", border_mode=0, fill=114.0)
    zero = {"x": (0.0, 0.0), "y": (0.0, 0.0)}
    affine = {
        "scale": {"x": (0.9, 1.1), "y": (0.9, 1.1)},
        "keep_ratio": True,
        "balanced_scale": False,
        "shear": zero,
        "fit_output": False,
        "translate_px": None,
        "translate_percent": {"x": (-0.1, 0.1), "y": (-0.2, 0.2)},
        "rotate": (-10.0, 20.0),
    }
    found = hr.from_albumentations([keep, pad, album("Affine", **affine, **drawn)])
    assert found.view == (hr.Letterbox(640, fill=114),)
    assert found.augment == (hr.RandomAffine((-20, 10), (0.1, 0.2), (0.9, 1.1), fill=114),)
    assert len(found.notes) == 2
    for changed, why in (
        ({"keep_ratio": False}, "scales of x and y apart"),
        ({"shear": {"x": (-5, 5), "y": (0, 0)}}, "shears after it turns"),
        ({"translate_percent": {"x": (0, 0.1), "y": (0, 0)}}, "more to one side"),
    ):
        (unknown,) = hr.from_albumentations(album("Affine", **affine | changed, **drawn), partial=True).unknown
        assert why in unknown.note
    with pytest.raises(UsageError, match="take hr"):
        hr.from_albumentations([album("CoarseDropout")])


def resize(size: Any, interpolation: str = "bilinear") -> Any:
    return part("Resize", size=size, max_size=None, interpolation=SimpleNamespace(value=interpolation))


def album_resize(interpolation: int, **more: int) -> Any:
    return album("Resize", height=64, width=64, interpolation=interpolation, **more)


@pytest.mark.parametrize(
    ("parts", "exact"),
    [
        ([resize([48]), resize([224, 224])], False),
        ([resize([48]), part("CenterCrop", size=(40, 40)), resize([224])], False),
        ([resize([256]), CROP], False),
        ([part("CenterCrop", size=(100, 100)), resize([64])], False),
        ([resize([256]), part("CenterCrop", size=(224, 224)), FLIP], True),
        ([part("RandomCrop", size=(9, 9), padding=None, pad_if_needed=False, fill=0), resize([64])], True),
        ([resize([64], "nearest"), TO_IMAGE], True),
        ([resize([64], "nearest-exact"), TO_TENSOR], True),
        ([TO_IMAGE, resize([64], "nearest-exact")], True),
        ([TO_TENSOR, resize([64], "nearest")], True),
    ],
)
def test_one_resampling_is_no_two(parts: list[Any], exact: bool) -> None:
    """Resamplings in sequence differ from a view's one, and so does a resize of what a crop pads."""
    assert hr.from_torchvision(parts).exact is exact


@pytest.mark.parametrize(
    ("found", "image", "mask"),
    [
        (hr.from_torchvision([part("Resize", "torchvision.transforms.transforms", size=[8])]), "triangle", "nearest"),
        (hr.from_torchvision([resize([64], "nearest")]), "nearest", "nearest-torch"),
        (hr.from_torchvision([TO_IMAGE, resize([64], "nearest")]), "nearest-torch", "nearest-torch"),
        (hr.from_torchvision([TO_IMAGE, resize([64], "nearest-exact")]), "nearest-exact", "nearest-torch"),
        (hr.from_albumentations([album_resize(0)]), "nearest-opencv", "nearest-opencv"),
        (hr.from_albumentations([album_resize(1)]), "linear", "nearest-opencv"),
        (hr.from_albumentations([album_resize(1, mask_interpolation=6)]), "linear", "nearest"),
    ],
)
def test_nearest_is_that_of_the_library(found: Any, image: str, mask: str) -> None:
    assert found.exact
    assert (found.image.filter, found.mask) == (image, hr.Mask(filter=mask))


def test_timm_and_albumentations_are_told_too() -> None:
    timm = [resize([48]), part("RandomResizedCropAndInterpolation", "timm.data.transforms", size=(32, 32),
            scale=(0.5, 1.0), ratio=(0.75, 1.3), interpolation=SimpleNamespace(value="bilinear"))]  # fmt: skip
    assert not hr.from_timm(timm).exact
    small, large = (
        part("Resize", "albumentations.augmentations", height=side, width=side, p=1, interpolation=1)
        for side in (8, 32)
    )
    assert hr.from_albumentations([large]).exact
    assert not hr.from_albumentations([small, large]).exact
