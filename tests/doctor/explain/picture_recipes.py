"""Random recipes of pictures, made by Pillow, OpenCV and torch, and what an explanation of them has to say."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import torch
from PIL import Image
from torch.nn import functional

from headrace.doctor.explain import GREY, Box, Sighting

_PILLOW = {name: Image.Resampling[name.upper()] for name in ("box", "hamming", "bicubic", "lanczos")}
_PILLOW |= {"triangle": Image.Resampling.BILINEAR, "nearest-pillow": Image.Resampling.NEAREST}
_OPENCV = {"linear": cv2.INTER_LINEAR, "cubic": cv2.INTER_CUBIC, "area": cv2.INTER_AREA}
_OPENCV["nearest-opencv"] = cv2.INTER_NEAREST
_TORCH: dict[str, dict[str, Any]] = {
    "linear": {"mode": "bilinear"},
    "corners": {"mode": "bilinear", "align_corners": True},
    "cubic": {"mode": "bicubic"},
    "nearest-torch": {"mode": "nearest"},
    "nearest-exact": {"mode": "nearest-exact"},
    "triangle": {"mode": "bilinear", "antialias": True},
    "bicubic": {"mode": "bicubic", "antialias": True},
}
_ALIKE_WHERE_IT_GROWS = ({"linear", "triangle", "area"}, {"nearest-pillow", "nearest-exact", "box", "area"})
_NEAREST = {"nearest-pillow", "nearest-exact", "nearest-opencv", "nearest-torch"}
_SCALES = {"none": ((0.0,) * 3, (1 / 255,) * 3), "unit": ((0.0,) * 3, (1.0,) * 3), "half": ((0.5,) * 3, (0.5,) * 3)}
_SCALES["imagenet"] = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def photograph(random_state: np.random.Generator, height: int, width: int) -> np.ndarray:
    coarse = random_state.integers(0, 256, (height // 8 + 2, width // 8 + 2, 3), dtype=np.uint8)
    smooth = np.array(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)).astype(int)
    return np.clip(smooth + random_state.integers(-12, 13, smooth.shape), 0, 255).astype(np.uint8)


@dataclass
class PictureRecipe:
    """Recipe by its seed: the same in all samples but for windows and flips."""

    seed: int

    def __post_init__(self) -> None:
        pick = self.pick = random.Random(self.seed)
        self.library = pick.choice(["Pillow", "OpenCV", "torch"])
        self.filter = pick.choice(list({"Pillow": _PILLOW, "OpenCV": _OPENCV, "torch": _TORCH}[self.library]))
        self.geometry = pick.choice(["resize", "crop, resize", "resize, centre crop", "centre crop", "crop"])
        self.size = pick.randint(16, 300), pick.randint(16, 300)
        self.is_grey, self.is_bgr = pick.random() < 0.15, pick.random() < 0.2
        self.is_flipped, self.is_bytes = pick.random() < 0.5, pick.random() < 0.3
        self.scaling = "none" if self.is_bytes else pick.choice(list(_SCALES))
        self.layout = pick.choice(["CHW", "HWC"])

    def sightings(self, count: int = 3) -> list[Sighting]:
        state = np.random.default_rng(self.seed)
        self.windows: list[Box] = []
        self.flips: list[bool] = []
        return [self._sighting(state) for _ in range(count)]

    def _sighting(self, state: np.random.Generator) -> Sighting:
        pick = self.pick
        least = max(self.size) if self.geometry in ("centre crop", "crop") else 40
        height, width = pick.randint(least, 400), pick.randint(least, 400)
        source = photograph(state, height, width)
        window, size, at = Box(0, 0, height, width), self.size, (0, 0)
        if self.geometry == "crop, resize":
            rows, columns = pick.randint(20, height), pick.randint(20, width)
            window = Box(pick.randint(0, height - rows), pick.randint(0, width - columns), rows, columns)
        elif self.geometry == "resize, centre crop":
            short = max(self.size) + 20
            size = (short, int(short * width / height)) if height <= width else (int(short * height / width), short)
            at = round((size[0] - self.size[0]) / 2), round((size[1] - self.size[1]) / 2)
        elif self.geometry != "resize":
            at = round((height - self.size[0]) / 2), round((width - self.size[1]) / 2)
            if self.geometry == "crop":
                at = pick.randint(0, height - self.size[0]), pick.randint(0, width - self.size[1])
            window, size, at = Box(*at, *self.size), self.size, (0, 0)
        cut = source[window.top : window.top + window.height, window.left : window.left + window.width]
        is_scaled = size != (window.height, window.width)
        made = self._resized(cut, size) if is_scaled else self._grey(cut).astype(np.float32)
        made = made[at[0] : at[0] + self.size[0], at[1] : at[1] + self.size[1]]
        self.windows.append(window)
        self.flips.append(self.is_flipped and pick.random() < 0.5)
        leaf = self._scaled(made[:, ::-1] if self.flips[-1] else made)
        boxes = (window,) if self.geometry == "crop, resize" else ()
        return Sighting(leaf, source, boxes, (size,) if is_scaled else ())

    def _grey(self, cut: np.ndarray) -> np.ndarray:
        return np.array(Image.fromarray(cut).convert("L"))[..., None] if self.is_grey else cut

    def _resized(self, cut: np.ndarray, size: tuple[int, int]) -> np.ndarray:
        grey = self._grey(cut)
        if self.library == "Pillow":
            picture = Image.fromarray(grey[..., 0] if self.is_grey else grey)
            made = np.array(picture.resize(size[::-1], _PILLOW[self.filter])).astype(np.float32)
        elif self.library == "OpenCV":
            made = cv2.resize(np.ascontiguousarray(grey), size[::-1], interpolation=_OPENCV[self.filter])
            made = made.astype(np.float32)
        else:
            tensor = torch.from_numpy(np.ascontiguousarray(grey)).permute(2, 0, 1)[None].float()
            made = functional.interpolate(tensor, size=size, **_TORCH[self.filter])[0].permute(1, 2, 0).numpy()
        return made[..., None] if made.ndim == 2 else made

    def _scaled(self, made: np.ndarray) -> np.ndarray:
        made = made[..., ::-1] if self.is_bgr else made
        if self.is_bytes:
            leaf = np.clip(np.round(made), 0, 255).astype(np.uint8)
        else:
            mean, std = (np.array(each[: made.shape[2]]) for each in _SCALES[self.scaling])
            leaf = ((made / 255 - mean) / std).astype(np.float32)
        return leaf.transpose(2, 0, 1) if self.layout == "CHW" else leaf

    @property
    def filters(self) -> set[str | None]:
        """Filters that make these samples."""
        if self.geometry in ("centre crop", "crop"):
            return {None}
        found: set[str | None] = {self.filter}
        if self.filter in _NEAREST:
            found |= _NEAREST
        grows = all(self.size[0] >= one.height and self.size[1] >= one.width for one in self.windows)
        if grows or self.geometry == "resize, centre crop":
            for alike in _ALIKE_WHERE_IT_GROWS:
                found |= alike if found & alike else set()
        return found

    @property
    def channels(self) -> tuple[int, ...]:
        if self.is_grey:
            return (GREY,)
        return (2, 1, 0) if self.is_bgr else (0, 1, 2)

    @property
    def scale(self) -> list[float]:
        return [1 / 255 / std for std in _SCALES[self.scaling][1][: len(self.channels)]]

    @property
    def shift(self) -> list[float]:
        return [-mean / std for mean, std in zip(*_SCALES[self.scaling], strict=True)][: len(self.channels)]
