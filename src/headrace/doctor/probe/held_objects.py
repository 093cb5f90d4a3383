"""Live objects that a loader holds: images in one array, transforms and tokenizers of known libraries."""

from __future__ import annotations

import importlib
import sys
from itertools import islice
from types import FunctionType
from typing import Any

from .column_sources import COMPOSED, LEAVES, members_of, reached
from .described_values import attributes_of, class_name
from .own_transforms import READ, with_own_known

MOST_BYTES = 1 << 30
_MOST_LEVELS = 4
_MOST_OBJECTS = 2_000


def held_pictures(dataset: Any, length: int) -> Any:
    """Return the images of all samples as one uint8 array [N, height, width] or [N, height, width, channels].

    Return None if the dataset holds no such array, or one above 1 GB. For a Subset, return only its own images.
    """
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


_TRANSLATORS = {
    "torchvision": "from_torchvision",
    "timm": "from_timm",
    "albumentations": "from_albumentations",
}
"""Function of headrace that translates a transform of each library."""
_MAKERS = ("__getitem__", "__getitems__", "__iter__")
"""Methods that produce samples."""
_MOST_FOUND = 16
_MOST_TOKENIZER = 16 << 20
"""Maximum characters of a tokenizer as JSON."""


def live_objects(loader: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the outermost transforms that a loader reaches, as Loader arguments, and its tokenizers as JSON.

    There are no transforms if the program's Python has no headrace.
    """
    transforms: list[dict[str, Any]] = []
    tokenizers: list[str] = []
    dataset = loader.dataset
    makers = [getattr(type(dataset), name, None) for name in _MAKERS]
    stages = attributes_of(dataset).get("pipeline")  # of webdataset
    inner = (loader.collate_fn, *makers, *(stages if isinstance(stages, list) else ()))
    roots = [(dataset, 0), *((one, 1) for one in inner)]
    found = reached(roots, lambda one: _is_transform(one) or _is_tokenizer(one), _MOST_LEVELS, _MOST_OBJECTS, _inner)
    for thing in islice(found, _MOST_FOUND):
        library = class_name(type(thing)).partition(".")[0]
        if library in _TRANSLATORS:
            translated = _translated(thing, _TRANSLATORS[library])
            transforms += [] if translated is None else [translated]
        elif (text := _tokenizer_text(thing)) is not None and text not in tokenizers:
            tokenizers.append(text)
    return transforms, tokenizers


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


def named_in(function: FunctionType) -> list[Any]:
    """Return the objects that a function's code references: globals and closure variables."""
    named = [function.__globals__.get(name) for name in function.__code__.co_names]
    return named + [cell.cell_contents for cell in function.__closure__ or ()]


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
