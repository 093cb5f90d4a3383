"""The script's own view of an image, by the stages that were seen; and what it takes by its library and by Headrace."""

from __future__ import annotations

import io
import random
import re
import time
import warnings
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from headrace.doctor.session.model import Calibration, Session

IMAGE_READER = "image-reader"
PILLOW, OPENCV = "Pillow", "OpenCV"
RANDOM_CROP, CENTER_CROP, RESIZE = "RandomResizedCrop", "CenterCrop", "Resize"
LEAF = re.compile(r"(\w+)\[(?:\d+,)*3,(\d+),(\d+)\]")
"""Dtype, height and width of images in the text of a batch's shapes."""
CROPS = {RANDOM_CROP, CENTER_CROP, "RandomCrop", "Pillow crop", "torchvision center_crop", "torchvision resized_crop"}
GEOMETRY = CROPS | {
    "HorizontalFlip", "OpenCV cvtColor", "OpenCV flip", "OpenCV resize", "Pillow convert", "Pillow resize",
    "Pillow transpose", "RandomHorizontalFlip", RESIZE, "torchvision hflip", "torchvision horizontal_flip",
    "torchvision resize",
}  # fmt: skip
"""Transforms that a view does, by the names of docs/doctor/stages.md."""
VALUES = {
    "ConvertImageDtype", "Normalize", "OpenCV normalize", "PILToTensor", "ToDtype", "ToImage", "ToTensor", "ToTensorV2",
    "torchvision convert_image_dtype", "torchvision normalize", "torchvision pil_to_tensor", "torchvision to_dtype",
    "torchvision to_image", "torchvision to_tensor",
}  # fmt: skip
"""Transforms that a dtype and `normalize=` do."""
AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
"""What RandomResizedCrop draws from, unless it is told otherwise."""
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
ROUNDS = 3
Read = Callable[[], bytes]


@dataclass(frozen=True)
class ScriptView:
    """What a script makes of an image: its window, its size, and its values."""

    library: str
    window: str
    """`RandomResizedCrop`, `CenterCrop` or `Resize`; empty for the whole image."""
    height: int
    width: int
    is_float: bool
    is_normalised: bool

    @property
    def view(self) -> str:
        """The view in Headrace's terms, as code; empty for the whole image."""
        if not self.window:
            return ""
        size = f"{self.height}" if self.height == self.width else f"({self.height}, {self.width})"
        return f"headrace.{'Resize' if self.window == RESIZE else self.window}({size})"

    @property
    def code(self) -> str:
        """The reader, as code."""
        values = ['dtype="float32"'] * self.is_float + ["normalize=headrace.IMAGENET"] * self.is_normalised
        return f"headrace.ImageReader({', '.join([*([f'view={self.view}'] if self.view else []), *values])})"


def script_view(stages: Collection[str], shapes: Iterable[str]) -> ScriptView | None:
    """Return the view of a loader with these stages (`category:label`) and batches; None where no image is decoded."""
    labels = {name.partition(":")[2] for name in stages if name.startswith("transform:")}
    decoders = [name for name in stages if name.startswith("decode:")]
    library = next((one for one in (PILLOW, OPENCV) if any(one in name or "cv2" in name for name in decoders)), None)
    if library is PILLOW and not any(PILLOW in name for name in decoders):
        library = OPENCV
    found = next((match for shape in shapes if (match := LEAF.search(shape))), None)
    if library is None or found is None:
        return None
    window = next((one for one in (RANDOM_CROP, CENTER_CROP) if one in labels), "")
    if not window and any(RESIZE.lower() in one.lower() for one in labels):
        window = RESIZE
    values = labels <= GEOMETRY | VALUES
    normalises = any("normalize" in one.lower() for one in labels)
    is_float = values and found[1].startswith("float")
    return ScriptView(library, window, int(found[2]), int(found[3]), is_float, values and normalises)


def view_of(session: Session) -> ScriptView | None:
    """Return the view of a session's samples, of all its loaders together."""
    stages = {name for maker in session.makers for name in maker.stages}
    return script_view(stages, [shape for trainer in session.trainers for shape in trainer.shapes])


def timed_views(
    view: ScriptView, images: Iterable[tuple[str, Read]], is_time_left: Callable[[], bool]
) -> Calibration | None:
    """Time each image to what the script makes of it, by the script's library and by `ImageReader`.

    None without images, or where the doctor has not got that library.
    """
    try:
        present = {PILLOW: _by_pillow, OPENCV: _by_opencv}[view.library]()
        reader = _reader(view)
    except ImportError:
        return None
    calibration = Calibration(IMAGE_READER, "image")
    for name, read in takewhile(lambda _: is_time_left(), images):
        try:
            data = read()
            present_us = _best_us(lambda: _values(view, present(data, view, random.Random(name))))  # noqa: B023  # called at once
            other_us = _best_us(lambda: reader(data, rng=len(calibration.files)))  # noqa: B023
        except Exception:  # a file that is cut short, or no image whatever its name
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


def _reader(view: ScriptView) -> Any:
    import headrace

    size = view.height if view.height == view.width else (view.height, view.width)
    window = getattr(headrace, view.window)(size) if view.window else None
    normalize = headrace.IMAGENET if view.is_normalised else None
    return headrace.ImageReader(
        view=window,
        dtype="float32" if view.is_float else "uint8",
        normalize=normalize,
        output="numpy",
        channels_last=False,
    )


def _by_pillow() -> Callable[[bytes, ScriptView, random.Random], Any]:
    import numpy
    from PIL import Image

    def decoded(data: bytes, view: ScriptView, draw: random.Random) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data)) as opened:
                image = opened.convert("RGB")
        if view.window:
            left, top, right, bottom = _box(view, image.width, image.height, draw)
            image = image.crop((left, top, right, bottom)).resize((view.width, view.height), Image.Resampling.BILINEAR)
        return numpy.asarray(image)

    return decoded


def _by_opencv() -> Callable[[bytes, ScriptView, random.Random], Any]:
    import cv2
    import numpy

    def decoded(data: bytes, view: ScriptView, draw: random.Random) -> Any:
        pixels = cv2.imdecode(numpy.frombuffer(data, numpy.uint8), cv2.IMREAD_COLOR)
        if pixels is None:
            raise ValueError("no image")
        image = cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)
        if view.window:
            left, top, right, bottom = _box(view, image.shape[1], image.shape[0], draw)
            image = cv2.resize(image[top:bottom, left:right], (view.width, view.height))
        return image

    return decoded


def _values(view: ScriptView, pixels: Any) -> Any:
    """Return pixels as the script's tensors hold them, channels first."""
    import numpy

    if not view.is_float:
        return numpy.ascontiguousarray(pixels.transpose(2, 0, 1))
    values = numpy.ascontiguousarray(pixels.transpose(2, 0, 1)).astype(numpy.float32) / 255
    if view.is_normalised:
        mean, deviation = (numpy.array(one, numpy.float32)[:, None, None] for one in (MEAN, DEVIATION))
        values = (values - mean) / deviation
    return values


def _box(view: ScriptView, width: int, height: int, draw: random.Random) -> tuple[int, int, int, int]:
    """Return the window's left, top, right and bottom."""
    if view.window == RESIZE:
        return 0, 0, width, height
    if view.window == CENTER_CROP:
        side = min(width, height)
        return (width - side) // 2, (height - side) // 2, (width + side) // 2, (height + side) // 2
    area, ratio = draw.uniform(*AREA) * width * height, draw.uniform(*RATIO)
    wide, high = min(round((area * ratio) ** 0.5), width), min(round((area / ratio) ** 0.5), height)
    left, top = draw.randint(0, width - max(wide, 1)), draw.randint(0, height - max(high, 1))
    return left, top, left + max(wide, 1), top + max(high, 1)
