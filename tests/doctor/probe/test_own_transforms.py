"""Blurring and solarizing classes of a script's own are told by their calls."""

from __future__ import annotations

import random
from typing import Any

import pytest
from PIL import Image, ImageFilter, ImageOps

from headrace.doctor.probe.look.held_objects import told_by_calls, with_own_known

transforms = pytest.importorskip("torchvision.transforms")


class Blur:
    def __init__(self, p: float) -> None:
        self.p = p

    def __call__(self, picture: Image.Image) -> Image.Image:
        if random.random() >= self.p:
            return picture
        return picture.filter(ImageFilter.GaussianBlur(random.uniform(0.1, 2.0)))


class Solarization:
    def __init__(self, p: float) -> None:
        self.p = p

    def __call__(self, picture: Image.Image) -> Image.Image:
        return ImageOps.solarize(picture) if random.random() < self.p else picture


def test_a_blur_is_told_by_the_radii_of_its_calls() -> None:
    random.seed(0)
    (blur,) = told_by_calls(Blur(1.0)) or [None]
    assert type(blur).__name__ == "GaussianBlur"
    assert blur.sigma == pytest.approx((0.1, 2.0), abs=0.11)
    (applied,) = told_by_calls(Blur(0.5)) or [None]
    assert (type(applied).__name__, applied.p) == ("RandomApply", 0.5)


def test_solarizing_is_told_by_the_share_of_its_calls() -> None:
    random.seed(0)
    (solarize,) = told_by_calls(Solarization(0.2)) or [None]
    assert (type(solarize).__name__, solarize.threshold, solarize.p) == ("RandomSolarize", 128, 0.2)
    assert told_by_calls(Solarization(0.0)) == []


@pytest.mark.parametrize("part", [lambda picture: picture.rotate(5), lambda picture: 3, str], ids=["turn", "3", "text"])
def test_anything_else_is_not_known(part: Any) -> None:
    assert told_by_calls(part) is None


def test_own_parts_of_a_transform_are_replaced_in_a_copy() -> None:
    inner = transforms.RandomApply([Blur(1.0)], 0.5)
    whole = transforms.Compose([transforms.RandomResizedCrop(32), inner, transforms.ToTensor()])
    known, own = with_own_known(whole)
    assert [name.rpartition(".")[2] for name in own] == ["Blur"]
    assert type(known.transforms[1].transforms[0]).__name__ == "GaussianBlur"
    assert type(inner.transforms[0]) is Blur
    assert whole.transforms[1] is inner
