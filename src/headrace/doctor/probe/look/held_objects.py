"""Live objects that a loader holds: transforms, tokenizers, and the user's own that make numbers from texts."""

from __future__ import annotations

import copy
import importlib
import inspect
import math
import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from types import FunctionType
from typing import Any, Callable

from .leaves import as_array
from .objects import LEAVES, attributes_of, class_name, is_plain, members_of, named_in, reached

_MOST_LEVELS = 4
_MOST_OBJECTS = 2_000
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


_KNOWN = {
    *getattr(sys, "stdlib_module_names", ()),
    *("torch", "torchvision", "timm", "albumentations", "kornia", "numpy", "PIL", "cv2", "pandas", "pyarrow"),
    *("transformers", "tokenizers", "datasets", "webdataset", "headrace"),
}
"""Libraries whose objects are known otherwise, or make no tokens."""
_KINDS = (("batch", lambda call, texts: call(texts)), ("one", lambda call, texts: [call(text) for text in texts]))
"""Ways to give texts to a callable, by name: all as one list, or one by one."""


def is_own_call(thing: Any) -> bool:
    """Return True for a Python function, or an object with `__call__` in Python, of no known library."""
    kind = _kind_of(thing)
    function = kind if kind is thing else getattr(kind, "__call__", None)  # noqa: B004  # the function itself
    module = getattr(kind, "__module__", None) or ""
    return type(function) is FunctionType and module != "" and module.partition(".")[0] not in _KNOWN


def _kind_of(thing: Any) -> Any:
    """Return a function itself, or an object's class."""
    return thing if type(thing) is FunctionType else type(thing)


def texts_given(make: Callable[[], Any]) -> dict[Any, set[str]]:
    """Make a sample, and return the texts that each function's code was given, alone or in a list of one."""
    found: dict[Any, set[str]] = {}

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            code = frame.f_code
            for name in code.co_varnames[: code.co_argcount]:
                value = frame.f_locals.get(name)
                value = value[0] if type(value) in (list, tuple) and len(value) == 1 else value
                if type(value) is str:
                    found.setdefault(code, set()).add(value)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        make()
    except Exception:  # of the user's own code
        return {}
    finally:
        sys.setprofile(before)
    return found


def calls_seen(
    things: Iterable[Any], given: dict[Any, set[str]], texts: dict[str, list[str]], until: float
) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield what each callable makes of the texts of a column: its description, and int64 [texts, length].

    Only what the dataset itself has `given` the first text of the column is called: anything else, such as a function
    that removes a file, may do harm. A callable that raises, makes no rows of one length, or makes others on a second
    call is skipped.
    """
    for thing in things:
        function = thing if _kind_of(thing) is thing else type(thing).__call__
        for column, its in texts.items():
            if its[0] not in given.get(function.__code__, ()):
                continue
            for kind, call in _KINDS:
                if time.monotonic() > until:
                    return
                rows = _rows(call, thing, its)
                began = time.perf_counter()
                if rows is None or not _are_same(rows, _rows(call, thing, its)):
                    continue
                text_us = (time.perf_counter() - began) * 1e6 / len(its)
                if kind == "batch" and not _are_same(rows[:1], _rows(call, thing, its[:1])):
                    continue  # padded to the batch
                named = _named(thing, partial(_rows, call, texts=its), rows)
                yield {"column": column, "kind": kind, "text_us": text_us, **named}, rows
                break


def _rows(call: Callable[[Any, list[str]], Any], thing: Any, texts: list[str]) -> Any:
    """Return the rows that a callable makes of texts as int64; None if it makes none of one length."""
    try:
        numpy = sys.modules["numpy"]
        made = call(thing, list(texts))
        array = as_array(made)
        array = numpy.stack([numpy.asarray(each) for each in made]) if array is None else array
        is_rows = array.ndim == 2 and len(array) == len(texts) and array.shape[1] and array.dtype.kind in "iu"
        return array.astype("int64") if is_rows and array.min() >= 0 else None
    except Exception:  # of the user's own code, which takes no such text
        return None


def _are_same(one: Any, other: Any) -> bool:
    return other is not None and one.shape == other.shape and bool((one == other).all())


def _named(thing: Any, make: Callable[[Any], Any], rows: Any) -> dict[str, Any]:
    """Return the module and name to import a callable by (empty if none gives the same), and a class's arguments."""
    kind = _kind_of(thing)
    found = {"called": kind.__qualname__, "module": kind.__module__, "name": "", "arguments": None, "folder": ""}
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    if module is None or file is None or kind.__module__ == "__main__":
        return found
    path = Path(file).absolute()
    above = kind.__module__.count(".") + (path.name == "__init__.py")
    found["folder"] = str(path.parents[above])
    own = vars(module)
    name = next((name for name, value in list(own.items()) if value is thing), None)
    if name is not None:
        return {**found, "name": name}
    is_importable = own.get(kind.__qualname__) is kind
    if kind is thing or not is_importable:
        return found
    for arguments in ({}, _kept_arguments(thing)):
        try:
            is_same = _are_same(rows, make(kind(**arguments)))
        except Exception:  # it needs others
            continue
        if is_same:
            return {**found, "name": kind.__qualname__, "arguments": arguments}
    return found


def _kept_arguments(thing: Any) -> dict[str, Any]:
    """Return the arguments of an object's class that the object has as attributes of their names: text or numbers."""
    try:
        names, own = list(inspect.signature(type(thing)).parameters), vars(thing)
    except (TypeError, ValueError):
        return {}
    kept = {name: own[name] for name in names if name in own}
    return {name: value for name, value in kept.items() if is_plain(value)}
