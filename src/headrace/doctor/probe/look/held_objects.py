"""Live objects that a loader holds: images in one array, transforms and tokenizers of known libraries."""

from __future__ import annotations

import copy
import importlib
import math
import sys
from itertools import islice
from types import FunctionType
from typing import Any

from .held_calls import is_own_call
from .objects import COMPOSED, LEAVES, attributes_of, class_name, members_of, named_in, reached

MOST_BYTES = 1 << 30
_MOST_LEVELS = 4
_MOST_OBJECTS = 2_000


def held_pictures(dataset: Any, length: int) -> Any:
    """Return all samples' images as uint8 [N, height, width], or with channels; None without, or above 1 GB."""
    numpy = sys.modules.get("numpy")
    inner, indices = getattr(dataset, "dataset", None), getattr(dataset, "indices", None)
    if numpy is None:
        return None
    if inner is not None and indices is not None and len(indices) == length:
        whole = held_pictures(inner, len(inner))
        return None if whole is None else whole[numpy.asarray(indices)]
    found = reached(
        [(dataset, 0)],
        lambda thing: _as_pictures(thing, length, numpy) is not None,
        _MOST_LEVELS,
        _MOST_OBJECTS,
        _arrays_in,
    )
    return next((_as_pictures(thing, length, numpy) for thing in found), None)


def _arrays_in(thing: Any) -> list[Any]:
    members = members_of(thing).items()
    return [one for label, one in members if label != COMPOSED and not issubclass(type(one), LEAVES)]


def _as_pictures(thing: Any, length: int, numpy: Any) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and type(thing) is torch.Tensor and thing.device.type == "cpu":
        thing = thing.detach().numpy()
    if not isinstance(thing, numpy.ndarray) or thing.dtype != numpy.uint8 or thing.ndim not in (3, 4):
        return None
    is_coloured = thing.ndim == 3 or thing.shape[3] in (1, 3)
    if thing.ndim == 4 and not is_coloured and thing.shape[1] in (1, 3):  # channels first, as in STL10 and SVHN
        thing, is_coloured = thing.transpose(0, 2, 3, 1), True
    return thing if is_coloured and len(thing) == length and thing.nbytes <= MOST_BYTES else None


_TRANSLATORS = {"torchvision": "from_torchvision", "timm": "from_timm", "albumentations": "from_albumentations"}
"""Function of headrace that translates a transform of each library."""
_MAKERS = ("__getitem__", "__getitems__", "__iter__")
"""Methods that produce samples."""
_MOST_FOUND = 16
_MOST_TOKENIZER = 16 << 20
"""Maximum characters of a tokenizer as JSON."""


def live_objects(loader: Any) -> tuple[list[dict[str, Any]], list[str], list[Any]]:
    """Return a loader's outermost transforms (none without headrace), its tokenizers as JSON, and callables."""
    transforms: list[dict[str, Any]] = []
    tokenizers: list[str] = []
    calls: list[Any] = []
    dataset = loader.dataset
    makers = [getattr(type(dataset), name, None) for name in _MAKERS]
    stages = attributes_of(dataset).get("pipeline")  # of webdataset
    inner = (loader.collate_fn, *makers, *(stages if isinstance(stages, list) else ()))
    roots = [(dataset, 0), *((one, 1) for one in inner)]
    outer = {id(one) for one, _ in roots}

    def is_known(thing: Any) -> bool:
        if _is_transform(thing) or _is_tokenizer(thing):
            return True
        if len(calls) < _MOST_FOUND and id(thing) not in outer and is_own_call(thing):
            calls.append(thing)
        return False

    found = reached(roots, is_known, _MOST_LEVELS, _MOST_OBJECTS, _inner)
    for thing in islice(found, _MOST_FOUND):
        library = class_name(type(thing)).partition(".")[0]
        if library in _TRANSLATORS:
            translated = _translated(thing, _TRANSLATORS[library])
            transforms += [] if translated is None else [translated]
        elif (text := _tokenizer_text(thing)) is not None and text not in tokenizers:
            tokenizers.append(text)
    return transforms, tokenizers, calls


def _inner(thing: Any) -> list[Any]:
    members = named_in(thing) if type(thing) is FunctionType else members_of(thing).values()
    return [one for one in members if not _is_leaf(one)]


def _is_tokenizer(thing: Any) -> bool:
    return type(thing).__module__.partition(".")[0] in ("tokenizers", "transformers") and (
        hasattr(thing, "to_str") or hasattr(thing, "backend_tokenizer")
    )


def _tokenizer_text(tokenizer: Any) -> str | None:
    """Return a fast tokenizer as JSON; None for a slow (pure Python) tokenizer."""
    try:
        text = getattr(tokenizer, "backend_tokenizer", tokenizer).to_str()
        return text if isinstance(text, str) and len(text) <= _MOST_TOKENIZER else None
    except Exception:
        return None


def _is_leaf(thing: Any) -> bool:
    return issubclass(type(thing), LEAVES) and type(thing) is not FunctionType


def _is_transform(thing: Any) -> bool:
    module = type(thing).__module__
    if module.partition(".")[0] not in _TRANSLATORS:
        return False
    return callable(thing) and ("transforms" in module or "augment" in module or module.startswith("albumentations"))


def _translated(transform: Any, translator: str) -> dict[str, Any] | None:
    """Return a transform as code with `hr` for headrace; None if headrace is missing or cannot translate it."""
    try:
        headrace = importlib.import_module("headrace")
        known, own = with_own_known(transform)
        made = getattr(headrace, translator)(known, partial=True)
        parts = [[part.part, part.becomes, part.note] for part in made.parts]
        return {"code": made.code, "parts": parts + [[name, "what stands for it", READ] for name in own]}
    except Exception:
        return None


READ = "a class of the script's own, whose draws are read from calls of it"
"""Note of a part that replaces an identified transform."""
_LEAST_CALLS, _MOST_CALLS = 64, 512
_CHANGED = 64
"""Calls that changed the image after which sampling stops."""
_LIBRARIES = ("torchvision", "torch", "timm", "open_clip", "albumentations")
_SHARES = ("p", "prob", "probability")
_SIDE = 48
_MOST_RADIUS = 8.0
_MOST_OFF = 2
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
    if levels > _MOST_OFF:
        raise ValueError(f"expected a blur, got pixels that are {levels} levels off")
    return middle


def _share(part: Any, seen: float) -> float:
    """Return the share of images that a transform changes: a declared probability if close to `seen`."""
    said = [value for name, value in attributes_of(part).items() if name in _SHARES and type(value) in (int, float)]
    return float(next((value for value in said if abs(value - seen) <= _NEAR), round(seen, 1)))
