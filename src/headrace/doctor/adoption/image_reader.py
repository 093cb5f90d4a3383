"""The script's own view of an image, timed with the script's library and with Headrace's ImageReader."""

from __future__ import annotations

import io
import random
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from math import sqrt
from typing import Any

import headrace as hr
from headrace.doctor.adoption.view_codes import evaluated
from headrace.doctor.machine import surveyed
from headrace.doctor.measure import TrainerView, main_view_of
from headrace.doctor.session.after_run import Calibration, MachineSurvey
from headrace.doctor.session.model import Session

IMAGE_READER = "image-reader"
PILLOW, OPENCV = "Pillow", "OpenCV"
GEOMETRY = {
    "CenterCrop", "HorizontalFlip", "OpenCV cvtColor", "OpenCV flip", "OpenCV resize", "Pillow convert", "Pillow crop",
    "Pillow resize", "Pillow transpose", "RandomCrop", "RandomHorizontalFlip", "RandomResizedCrop", "Resize",
    "torchvision center_crop", "torchvision hflip", "torchvision horizontal_flip", "torchvision resize",
    "torchvision resized_crop",
}  # fmt: skip
"""Transforms that a view covers, by the names of docs/doctor/internals.md."""
VALUES = {
    "ConvertImageDtype", "Normalize", "OpenCV normalize", "PILToTensor", "ToDtype", "ToImage", "ToTensor", "ToTensorV2",
    "torchvision convert_image_dtype", "torchvision normalize", "torchvision pil_to_tensor", "torchvision to_dtype",
    "torchvision to_image", "torchvision to_tensor",
}  # fmt: skip
"""Transforms that a dtype and `normalize=` cover."""
FILTERS = ("nearest", "bilinear", "bicubic", "box", "lanczos")
"""Filters by their numbers in OpenCV; number 3 is INTER_AREA."""
READER_FILTERS = {
    PILLOW: {"nearest": "nearest", "bilinear": "triangle", "bicubic": "bicubic", "lanczos": "lanczos"},
    OPENCV: {"bilinear": "linear"},
}
"""ImageReader's filters, by library and name of the script's filter."""
ROUNDS, ATTEMPTS = 3, 10
Read = Callable[[], bytes]


@dataclass(frozen=True)
class ScriptView:
    """View of an image in a script: its window and its values.

    Steps and values are code with `hr` for headrace.
    """

    library: str
    """Library that decodes images: Pillow or OpenCV."""
    steps: tuple[str, ...]
    """Steps of the view, `hr.RandomResizedCrop(192, scale=(0.5, 1.0))`; none for the whole image."""
    dtype: str = "uint8"
    normalize: str = ""
    """`hr.IMAGENET`, or `hr.Normalize(mean, std)`; empty without normalization."""
    filter: str = "bilinear"
    """Resize filter of the script."""
    replaces: frozenset[str] = frozenset()
    """Labels of the transforms that the view, the dtype and `normalize` cover."""

    @property
    def window(self) -> str:
        """Name of the first step that crops or resizes; empty for the whole image."""
        names = [step.removeprefix("hr.").partition("(")[0] for step in self.steps]
        return next((name for name in names if "Flip" not in name), "")

    @property
    def applies_exif(self) -> bool:
        """True if the library turns images by their EXIF orientation."""
        return self.library == OPENCV

    @property
    def reader_filter(self) -> str | None:
        """ImageReader's name of the script's filter; None if it lacks the filter."""
        return READER_FILTERS[self.library].get(self.filter)

    @property
    def code(self) -> str:
        steps = self.steps[0] if len(self.steps) == 1 else f"[{', '.join(self.steps)}]"
        values = [f'dtype="{self.dtype}"'] * (self.dtype != "uint8") + [f"normalize={self.normalize}"] * bool(
            self.normalize
        )
        if self.window and self.reader_filter not in (None, "triangle"):
            values.append(f'filter="{self.reader_filter}"')
        if not self.applies_exif:
            values.append("exif=False")
        text = f"hr.ImageReader({', '.join([*([f'view={steps}'] if self.steps else []), *values])})"
        return text.replace("hr.", "headrace.")


def script_view(session: Session, view: TrainerView) -> ScriptView | None:
    """Return the view of the images in the loader that a training waits for; None if no image is decoded.

    It comes from inspected samples; without them, it is the whole image. A reader has no augmentations, so values after
    them are left out.
    """
    if not view.batch_production:
        return None
    stages = [(one.category, one.label) for one in view.batch_production[0].stages]
    decoders = [label for category, label in stages if category == "decode"]
    if any(PILLOW in label for label in decoders):
        library = PILLOW
    elif any(OPENCV in label or "cv2" in label for label in decoders):
        library = OPENCV
    else:
        return None
    image = session.looked_image
    if image is None:
        return ScriptView(library, ())
    covered = GEOMETRY if image.is_augmented else GEOMETRY | VALUES
    return ScriptView(
        library=library,
        steps=tuple(image.steps),
        dtype="uint8" if image.is_augmented else image.dtype,
        normalize="" if image.is_augmented else image.normalize,
        filter=image.filter,
        replaces=frozenset(covered.intersection(label for category, label in stages if category == "transform")),
    )


# Timing.


def survey_of(session: Session) -> MachineSurvey:
    """Survey the session's machine, which must be this one, with images processed as in the script."""
    view = main_view_of(session)
    images = None if view is None else script_view(session, view)
    return surveyed(session.machines[0], session.opened, None if images is None else partial(timed_views, images))


def timed_views(
    view: ScriptView, images: Iterable[tuple[str, Read]], is_time_left: Callable[[], bool]
) -> Calibration | None:
    """Time the script's view of each image in the script's library and in `ImageReader`.

    None without images, or if the doctor's environment lacks the library.
    """
    steps = [evaluated(step) for step in view.steps]
    values = evaluated(view.normalize) if view.normalize else None
    try:
        present = {PILLOW: _by_pillow, OPENCV: _by_opencv}[view.library](view.filter)
    except ImportError:
        return None
    dtype: Any = view.dtype
    chosen: Any = view.reader_filter or "triangle"
    reader = hr.ImageReader(
        view=steps,
        dtype=dtype,
        normalize=values,
        filter=chosen,
        exif=view.applies_exif,
        output="numpy",
        channels_last=False,
    )
    calibration = Calibration(IMAGE_READER, "image", view=view.code)
    for name, read in takewhile(lambda _: is_time_left(), images):
        try:
            data = read()
            present_us = _best_us(lambda: _values(view, present(data, steps, random.Random(name)), values))  # noqa: B023  # called at once
            other_us = _best_us(lambda: reader(data, rng=len(calibration.files)))  # noqa: B023
        except Exception:  # a truncated file, or no image despite its name
            continue
        calibration.files.append(name)
        calibration.present_us.append(present_us)
        calibration.other_us.append(other_us)
    return calibration if calibration.files else None


def _best_us(call: Callable[[], Any]) -> float:
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter_ns()
        call()
        times.append((time.perf_counter_ns() - began) / 1000)
    return min(times)


Present = Callable[[bytes, Sequence[Any], random.Random], Any]
Box = tuple[int, int, int, int]


def _by_pillow(filter: str) -> Present:
    import numpy
    from PIL import Image

    resample = Image.Resampling[filter.upper()]

    def decoded(data: bytes, steps: Sequence[Any], draw: random.Random) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data)) as opened:
                image = opened.convert("RGB")
        for step in steps:
            box, size = _cut(step, image.width, image.height, draw)
            if box != (0, 0, image.width, image.height):
                image = image.crop(box)
            if size is not None and size != image.size:
                image = image.resize(size, resample)
            if _is_mirrored(step, draw):
                image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return numpy.asarray(image)

    return decoded


def _by_opencv(filter: str) -> Present:
    import cv2
    import numpy

    filters = ("NEAREST", "LINEAR", "CUBIC", "AREA", "LANCZOS4")
    interpolation = getattr(cv2, f"INTER_{filters[FILTERS.index(filter)]}")

    def decoded(data: bytes, steps: Sequence[Any], draw: random.Random) -> Any:
        pixels = cv2.imdecode(numpy.frombuffer(data, numpy.uint8), cv2.IMREAD_COLOR)
        if pixels is None:
            raise ValueError("no image")
        image = cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)
        for step in steps:
            (left, top, right, bottom), size = _cut(step, image.shape[1], image.shape[0], draw)
            image = image[max(top, 0) : bottom, max(left, 0) : right]
            if size is not None and size != (image.shape[1], image.shape[0]):
                image = cv2.resize(image, size, interpolation=interpolation)
            if _is_mirrored(step, draw):
                image = cv2.flip(image, 1)
        return image

    return decoded


def _cut(step: Any, width: int, height: int, draw: random.Random) -> tuple[Box, tuple[int, int] | None]:
    """Return the window (left, top, right, bottom) that a view step crops, and its new (width, height)."""
    if isinstance(step, hr.RandomResizedCrop):
        high, wide = _pair(step.size)
        return _random_box(step, width, height, draw), (wide, high)
    if isinstance(step, hr.Resize):
        size = step.size
        if isinstance(size, tuple | list):
            return (0, 0, width, height), (size[1], size[0])
        short, long = min(width, height), max(width, height)
        scaled = int(size * long / short)
        return (0, 0, width, height), (size, scaled) if width <= height else (scaled, size)
    if isinstance(step, hr.CenterCrop | hr.RandomCrop):
        high, wide = _pair(step.size)
        is_middle = isinstance(step, hr.CenterCrop)
        left = (width - wide) // 2 if is_middle or wide >= width else draw.randint(0, width - wide)
        top = (height - high) // 2 if is_middle or high >= height else draw.randint(0, height - high)
        return (left, top, left + wide, top + high), None
    return (0, 0, width, height), None


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


def _random_box(step: Any, width: int, height: int, draw: random.Random) -> Box:
    for _ in range(ATTEMPTS):
        area, ratio = draw.uniform(*step.scale) * width * height, draw.uniform(*step.ratio)
        wide, high = round(sqrt(area * ratio)), round(sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            left, top = draw.randint(0, width - wide), draw.randint(0, height - high)
            return left, top, left + wide, top + high
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, (width + side) // 2, (height + side) // 2


def _is_mirrored(step: Any, draw: random.Random) -> bool:
    share = step.p if isinstance(step, hr.RandomHorizontalFlip) else getattr(step, "flip", 0.0)
    return bool(draw.random() < share)


def _values(view: ScriptView, pixels: Any, normalize: Any) -> Any:
    """Return pixels as in the script's tensors, channels first."""
    import numpy

    planes = numpy.ascontiguousarray(pixels.transpose(2, 0, 1))
    if view.dtype == "uint8":
        return planes
    values = planes.astype(numpy.float32) / 255
    if normalize is not None:
        mean, deviation = (numpy.array(one, numpy.float32)[:, None, None] for one in (normalize.mean, normalize.std))
        values = (values - mean) / deviation
    return values
