"""Transforms of a script's own that blur or solarize pictures as Pillow does, told by what they make of a picture.

Each is called on a made picture, by its own draws; a transform of torchvision stands for it in what is translated.
"""

from __future__ import annotations

import copy
import importlib
import math
from typing import Any

from .described_values import attributes_of, class_name

READ = "a class of the script's own, whose draws are read from calls of it"
"""Note of a part that stands for one."""
_LEAST_CALLS, _MOST_CALLS = 64, 512
_CHANGED = 64
"""Calls that change the picture, after which no more are made."""
_LIBRARIES = ("torchvision", "torch", "timm", "albumentations")
_SHARES = ("p", "prob", "probability")
_SIDE = 48
_MOST_RADIUS = 8.0
_MOST_LEVELS = 2
_HALVINGS = 16
_NEAR = 0.2
"""By which a share of calls may differ from the share that a transform draws by."""


def with_own_known(transform: Any) -> tuple[Any, list[str]]:
    """Return a copy of a transform of torchvision with parts of the script's own replaced, and their classes."""
    inner = getattr(transform, "transforms", None)
    if class_name(type(transform)).partition(".")[0] != "torchvision" or type(inner) is not list:
        return transform, []
    known: list[str] = []
    made: list[Any] = []
    for part in inner:
        name = class_name(type(part))
        if name.partition(".")[0] in _LIBRARIES:
            part, more = with_own_known(part)
            made.append(part)
            known += more
            continue
        found = told_by_calls(part)
        made += [part] if found is None else found
        known += [] if found is None else [name]
    if not known:
        return transform, []
    changed = copy.copy(transform)
    changed.transforms = made
    return changed, known


def told_by_calls(part: Any) -> list[Any] | None:
    """Return the transforms of torchvision that do the same: none where nothing changes. None of what is unknown."""
    try:
        images, transforms = (importlib.import_module(name) for name in ("PIL.ImageOps", "torchvision.transforms"))
        picture = _picture()
        solarized = images.solarize(picture).tobytes()
        radii: list[float] = []
        inverted, calls = 0, 0
        while calls < (_MOST_CALLS if radii or inverted else _LEAST_CALLS) and len(radii) + inverted < _CHANGED:
            calls += 1
            made = part(picture.copy())
            if made.size != picture.size or made.mode != picture.mode:
                return None
            data = made.tobytes()
            inverted += data == solarized
            if data not in (solarized, picture.tobytes()):
                radii.append(_radius(picture, made))
    except Exception:  # of the script's own, which takes no pictures, or only its own; or it does not blur
        return None
    if radii and inverted:
        return None
    share = _share(part, (len(radii) + inverted) / calls)
    if inverted:
        return [transforms.RandomSolarize(128, share)]
    if not radii:
        return []
    beyond = (max(radii) - min(radii)) / len(radii)  # what so many draws of a range leave of it at either end
    ends = tuple(max(round(end, 1), 0.1) for end in (min(radii) - beyond, max(radii) + beyond))
    blur = transforms.GaussianBlur(2 * math.ceil(3 * ends[1]) + 1, ends)
    return [blur if share == 1 else transforms.RandomApply([blur], share)]


def _picture() -> Any:
    """Return a picture of noise, whose spread tells how much it was blurred."""
    image, numpy = importlib.import_module("PIL.Image"), importlib.import_module("numpy")
    return image.fromarray(numpy.random.RandomState(0).randint(0, 256, (_SIDE, _SIDE, 3)).astype("uint8"))


def _radius(picture: Any, made: Any) -> float:
    """Return the radius by which a picture was blurred; ValueError where it was not."""
    numpy, filters = importlib.import_module("numpy"), importlib.import_module("PIL.ImageFilter")
    low, high = 0.0, _MOST_RADIUS
    wanted = numpy.asarray(made).std()
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        blurred = numpy.asarray(picture.filter(filters.GaussianBlur(middle)))
        low, high = (middle, high) if blurred.std() > wanted else (low, middle)
    levels = numpy.abs(blurred.astype(int) - numpy.asarray(made)).max()
    if levels > _MOST_LEVELS:
        raise ValueError(f"expected a blur, got pixels that are {levels} levels off")
    return middle


def _share(part: Any, seen: float) -> float:
    """Return the share of pictures that a transform changes: what an attribute says, if that is near what was seen."""
    said = [value for name, value in attributes_of(part).items() if name in _SHARES and type(value) in (int, float)]
    return float(next((value for value in said if abs(value - seen) <= _NEAR), round(seen, 1)))
