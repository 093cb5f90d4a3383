"""The script's own transforms that blur or solarize images like Pillow, identified by their output.

Each transform is called on a synthetic image, with its own random draws. In the translation, an equivalent torchvision
transform replaces it.
"""

from __future__ import annotations

import copy
import importlib
import math
from typing import Any

from .described_values import attributes_of, class_name

READ = "a class of the script's own, whose draws are read from calls of it"
"""Note of a part that replaces an identified transform."""
_LEAST_CALLS, _MOST_CALLS = 64, 512
_CHANGED = 64
"""Calls that changed the image after which sampling stops."""
_LIBRARIES = ("torchvision", "torch", "timm", "albumentations")
_SHARES = ("p", "prob", "probability")
_SIDE = 48
_MOST_RADIUS = 8.0
_MOST_LEVELS = 2
_HALVINGS = 16
_NEAR = 0.2
"""Tolerance between the observed share of changed images and a declared probability."""


def with_own_known(transform: Any) -> tuple[Any, list[str]]:
    """Return a copy of a torchvision transform with identified parts of the script replaced, and their classes."""
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
    """Return the equivalent torchvision transforms, an empty list if nothing changes, or None if unknown."""
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
    except Exception:  # of the script's own code: it takes no images, only its own type, or does not blur
        return None
    if radii and inverted:
        return None
    share = _share(part, (len(radii) + inverted) / calls)
    if inverted:
        return [transforms.RandomSolarize(128, share)]
    if not radii:
        return []
    beyond = (max(radii) - min(radii)) / len(radii)  # expected gap at either end after that many uniform draws
    ends = tuple(max(round(end, 1), 0.1) for end in (min(radii) - beyond, max(radii) + beyond))
    blur = transforms.GaussianBlur(2 * math.ceil(3 * ends[1]) + 1, ends)
    return [blur if share == 1 else transforms.RandomApply([blur], share)]


def _picture() -> Any:
    """Return a noise image; its standard deviation measures how much it was blurred."""
    image, numpy = importlib.import_module("PIL.Image"), importlib.import_module("numpy")
    return image.fromarray(numpy.random.RandomState(0).randint(0, 256, (_SIDE, _SIDE, 3)).astype("uint8"))


def _radius(picture: Any, made: Any) -> float:
    """Return the radius of the blur between two images; raise ValueError if it is no blur."""
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
    """Return the share of images that a transform changes: a declared probability if close to `seen`."""
    said = [value for name, value in attributes_of(part).items() if name in _SHARES and type(value) in (int, float)]
    return float(next((value for value in said if abs(value - seen) <= _NEAR), round(seen, 1)))
