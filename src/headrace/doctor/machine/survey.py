"""Images decoded by Pillow, as the run did, and by the native decoder."""

from __future__ import annotations

import io
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from headrace.doctor.session.model import Calibration

ENDS = (".jpg", ".jpeg", ".png")
"""What the native decoder does itself; others it leaves to Pillow."""
PNG = ".png"
ROUNDS = 3
"""The quickest of them counts, since other work may have been in the way of the others."""
NEIGHBOURS = 6
MOST_ENTRIES = 1000
"""Of a folder that are looked at."""

NO_VIEW = (0, 10)
"""Operations of a view, and columns of each: the image as it is."""

Decode = Callable[[bytes], Any]


def is_image(path: str) -> bool:
    return path.lower().endswith(ENDS)


def near(path: str) -> list[str]:
    """It, and others of its folder, spread over what is listed first."""
    folder = os.path.dirname(path)
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in islice(entries, MOST_ENTRIES) if is_image(entry.name))
    except OSError:
        return [path]
    spread = names[:: max(1, len(names) // NEIGHBOURS)][:NEIGHBOURS]
    return list(dict.fromkeys([path, *(os.path.join(folder, name) for name in spread)]))


def decoded(images: Iterable[tuple[str, Callable[[], bytes]]], is_time_left: Callable[[], bool]) -> Calibration | None:
    """What each takes to its pixels, in both ways. None where there is none, or no native decoder."""
    native = _native()
    if native is None:
        return None
    calibration = Calibration("native-decode", "image")
    for name, read in _while_true(images, is_time_left):
        try:
            data = read()
            present_us, other_us = _best_us(_by_pillow, data), _best_us(_as_pillow(native, name), data)
            pixels = native(data)
        except Exception:  # a file that is cut short, or no image whatever its name
            continue
        if isinstance(pixels, tuple):  # the decoder declined it
            continue
        calibration.files.append(name)
        calibration.present_us.append(present_us)
        calibration.other_us.append(other_us)
        calibration.pixel_bytes.append(pixels.nbytes)
    return calibration if calibration.files else None


def _while_true(
    images: Iterable[tuple[str, Callable[[], bytes]]], is_true: Callable[[], bool]
) -> Iterator[tuple[str, Callable[[], bytes]]]:
    for image in images:
        if not is_true():
            return
        yield image


def _best_us(decode: Decode, data: bytes) -> float:
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter_ns()
        decode(data)
        times.append(time.perf_counter_ns() - began)
    return min(times) / 1000


def _by_pillow(data: bytes) -> None:
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Image.open(io.BytesIO(data)) as image:
            image.load()


def _as_pillow(native: Decode, name: str) -> Decode:
    """A PNG's pixels are given to Pillow, as a script goes on with them; a JPEG is decoded for a resize at once."""
    from PIL import Image

    return (lambda data: Image.fromarray(native(data))) if name.lower().endswith(PNG) else native


def _native() -> Decode | None:
    """The whole image as RGB bytes."""
    try:
        import numpy

        from headrace import _core
    except ImportError:
        return None
    decoder = _core.ImageDecoder(
        numpy.zeros(NO_VIEW),
        channels=3,
        dtype="uint8",
        planar=False,
        subtract=[0.0] * 3,
        divide=[255.0] * 3,
        fill=[0] * 3,
        filter="triangle",
        dct_scaling=True,
        orient=False,
        limits=_core.Limits(),
    )
    return lambda data: decoder.decode_bytes(data, 0)
