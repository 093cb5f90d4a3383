"""Translation of the real transforms, where torchvision, timm or albumentations are installed: pixels and parts."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

import headrace as hr


def folder(tmp_path: Path) -> tuple[Path, PIL.Image.Image]:
    """One photograph-like PNG, and its pixels."""
    rng = np.random.default_rng(3)
    small = PIL.Image.fromarray(rng.integers(0, 256, (12, 18, 3), dtype=np.uint8))
    picture = small.resize((400, 300), PIL.Image.Resampling.BICUBIC)
    (tmp_path / "class").mkdir()
    with io.BytesIO() as out:
        picture.save(out, "PNG")
        (tmp_path / "class/0.png").write_bytes(out.getvalue())
    return tmp_path, picture


def first(path: Path, found: hr.Translated) -> np.ndarray:
    loader = hr.Loader(
        path, {"image": found.image}, view=found.view, augment=found.augment, batch_size=1, output="numpy"
    )
    return next(iter(loader))["image"][0]


def test_torchvisions_evaluation_gives_the_same_pixels(tmp_path: Path) -> None:
    transforms = pytest.importorskip("torchvision.transforms")
    path, picture = folder(tmp_path)
    steps = [transforms.Resize(128), transforms.CenterCrop(96), transforms.ToTensor()]
    for normalize in ([], [transforms.Normalize(hr.IMAGENET.mean, hr.IMAGENET.std)]):
        made = transforms.Compose([*steps, *normalize])
        found = hr.from_torchvision(made)
        assert found.exact
        level = 1.01 / 255 / (min(hr.IMAGENET.std) if normalize else 1)
        assert np.abs(first(path, found) - made(picture).numpy()).max() <= level


@pytest.mark.filterwarnings("ignore:The transform `ToTensor:UserWarning")  # v2 still takes it
@pytest.mark.parametrize("version", ["torchvision.transforms", "torchvision.transforms.v2"])
def test_torchvisions_training_is_exact(version: str) -> None:
    v = pytest.importorskip(version)
    mean, std = hr.IMAGENET.mean, hr.IMAGENET.std
    made = v.Compose(
        [
            v.RandomResizedCrop(224),
            v.RandomApply([v.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8),
            v.RandomGrayscale(0.2),
            v.GaussianBlur(23, (0.1, 2.0)),
            v.RandomHorizontalFlip(),
            v.RandomChoice([v.TrivialAugmentWide(), v.AutoAugment(), v.RandAugment(), v.AugMix()]),
            v.RandomAffine(10, (0.1, 0.1), (0.9, 1.1), 5),
            v.ToTensor(),
            v.Normalize(mean, std),
            v.RandomErasing(0.25),
        ]
    )
    found = hr.from_torchvision(made)
    assert found.exact
    assert found.augment is not None
    assert len(found.augment) == 6


def test_timms_create_transform() -> None:
    create_transform = pytest.importorskip("timm.data").create_transform
    for text in ("rand-m9-mstd0.5-inc1", "augmix-m5-w4-d2", "original-mstd0.5", "rand-m7-n3-tweights"):
        made = create_transform(224, is_training=True, auto_augment=text, re_prob=0.25, re_mode="rand", re_count=3)
        found = hr.from_timm(made)
        assert found.exact
        assert found.image == hr.Image(dtype="float32", normalize=hr.IMAGENET)
        assert found.augment is not None
        assert (found.augment[1].value, found.augment[1].count) == ("random_color", (1, 3))
        assert sorted(found.augment[0].text.split("-")) in (sorted(text.split("-")), sorted([*text.split("-"), "n2"]))
    assert hr.from_timm(create_transform(224, interpolation="bilinear")).exact
    bicubic = hr.from_timm(create_transform(224, interpolation="bicubic"))
    assert (bicubic.exact, bicubic.image) == (True, hr.Image(dtype="float32", normalize=hr.IMAGENET, filter="bicubic"))


def test_albumentations() -> None:
    a, cv2 = pytest.importorskip("albumentations"), pytest.importorskip("cv2")
    crop, flip = a.RandomResizedCrop((224, 224), interpolation=cv2.INTER_CUBIC), a.HorizontalFlip()
    linear = hr.from_albumentations(a.RandomResizedCrop((224, 224)))
    assert (linear.exact, linear.image) == (True, hr.Image(filter="linear"))
    area = hr.from_albumentations(a.Resize(224, 224, area_for_downscale="image"))
    assert (area.exact, area.image) == (False, hr.Image())
    made = a.Compose([crop, flip, a.ColorJitter(p=0.8), a.ToGray(p=0.2), a.Rotate(15), a.Normalize()])
    found = hr.from_albumentations(made)
    assert found.notes == (
        f"{' '.join(repr(crop).split())}: resampled with antialiasing; OpenCV's cubic filter has none",
    )
    assert found.view == (hr.RandomResizedCrop(224), hr.RandomHorizontalFlip(0.5))
