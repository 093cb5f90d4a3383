"""Arguments of other libraries that Headrace does not have, and their replacements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, wraps
from inspect import Parameter, signature
from typing import Any, Self, TypeVar, cast

from headrace.errors import UnknownArgumentError

_ORDER = "hr.Loader(data, shuffle=True, seed=0)"
_FILTER = (
    'filter= of an Image: "triangle", which is antialiased bilinear, "bicubic", "lanczos", "linear", which is not '
    'antialiased, or "nearest"; masks are always nearest'
)
_FLOATS = 'dtype="float32" of the field, such as hr.Image(dtype="float32", normalize=hr.IMAGENET)'
_VIEW = "view= of the Loader, such as hr.Loader(data, view=hr.Resize(224))"

COUNTERPARTS: Mapping[str, Mapping[str, str]] = {
    "Loader": {
        "dataset": "it is the first argument: a path, or what headrace.open gave. A Dataset of Python code takes "
        "headrace.ThreadDataLoader",
        "num_workers": "native threads do the work, as many as threads= says (left out, the loader finds them); "
        "map_workers= are processes for the Python of map=",
        "drop_last": 'remainder="drop" for True; "short", which is the default, for False',
        "sampler": "shuffle= and seed= make the order, and each rank takes its part without a DistributedSampler; "
        "weights= (WeightedRandomSampler), balanced= and repeats= draw samples, data.select(indices) chooses them, "
        "headrace.mix weighs sources",
        "batch_sampler": "batch_size= and shuffle= cut the batches; buckets= or batch_size=headrace.Budget(…) group "
        "samples of like size",
        "collate_fn": "batches are made natively, of equal shapes by view= or buckets=; batch_map= changes whole "
        "batches, batch=headrace.MixUp(…) or CutMix(…) mixes them",
        "pin_memory": 'device="cuda": batches are made in pinned memory and copied on a side stream',
        "pin_memory_device": 'device="cuda:1" or another: batches are handed out there',
        "persistent_workers": "nothing: native threads start in a moment; leave it out",
        "worker_init_fn": "nothing: threads share one process; what map= draws comes from the rng that it is given",
        "generator": "seed=: the order and every random view follow from it and the epoch",
        "prefetch_factor": "prefetch=, batches ahead in all and not a worker (left out, the loader finds it)",
        "timeout": "nothing: no worker process can be lost; leave it out",
        "in_order": "nothing: batches always come in order, and a slow sample holds up one thread; leave it out",
        "transform": "view= for geometry, map= for your own function of a sample and its rng",
        "target_transform": "map=, a function of a sample and its rng",
    },
    "open": {
        "split": 'the folder or files of that split: hr.open("data/train"); data.split(0.9) cuts a dataset at random, '
        'data.filter(split="train") takes the rows whose column says so',
        "train": 'the folder or files of that split: hr.open("data/train")',
        "streaming": "nothing: samples are always read when they are needed, from disks and stores alike",
        "transform": "view= of the Loader for geometry, map= for your own function of a sample and its rng",
        "target_transform": "map= of the Loader, a function of a sample and its rng",
        "shuffle": _ORDER,
        "batch_size": "hr.Loader(data, batch_size=64)",
        "num_proc": "nothing: threads list and index files",
    },
    "field": {
        "size": _VIEW,
        "resize": _VIEW,
        "interpolation": _FILTER,
        "resample": _FILTER,
        "mean": "normalize=hr.Normalize(mean=…, std=…)",
        "std": "normalize=hr.Normalize(mean=…, std=…)",
        "transform": "view= of the Loader for geometry, map= for your own function of a sample and its rng",
        "column": "source=, the name of the column",
        **dict.fromkeys(
            ("view", "copies"),
            "nothing: a sample follows view= of the Loader; only Image has its own",
        ),
    },
    "view": {
        "interpolation": _FILTER,
        "resample": _FILTER,
        "antialias": 'filter= of an Image: pixels are antialiased, except by "linear" and "nearest"',
        "max_long": "max_size=",
        "padding_mode": "fill=, one value: nothing else is padded with",
        "value": "fill=",
        "height": "size=(height, width)",
        "width": "size=(height, width)",
        "dtype": _FLOATS,
    },
}
"""Replacements by callee (a Loader, `open`, a field or a view) and argument name."""


_PLACES = {"views": "view= of the Loader", "augment": "augment= of the Loader, or of an Image", "fields": "fields"}
"""Arguments for the objects of each package."""
_TRANSLATED = ("torchvision", "albumentations", "timm")
_classes: dict[str, type[Any]] = {}
"""Classes of Headrace that belong into an argument, by names in lower case."""


def belongs(given: object) -> str:
    """Return where a misplaced object belongs, as the end of a message; empty for objects of no known library.

    Lists are searched for the first object of a known library. A class needs brackets.
    """
    for one in given if isinstance(given, list | tuple) else [given]:
        kind = one if isinstance(one, type) else type(one)
        library, package, *_ = [*kind.__module__.split("."), ""]
        if library in _TRANSLATED:
            name = kind.__name__.lower()
            ours = _classes.get(name) or _classes.get(f"random{name}")
            instead = "" if ours is None else f" write hr.{ours.__name__}(…), for {_place(ours)}, or"
            return f";{instead} translate {library}'s whole chain by hr.from_{library}(…)"
        if library != "headrace" or package not in _PLACES:
            continue
        if isinstance(one, type):
            return f"; write hr.{kind.__name__}(…), with brackets"
        return f"; {kind.__name__} belongs into {_place(kind)}"
    return ""


def _place(kind: type) -> str:
    if kind.__name__ == "Normalize":
        return "normalize= of an Image"
    place = "batch= of the Loader" if kind.__module__.endswith(".mixing") else _PLACES[kind.__module__.split(".")[1]]
    return f"{place}, or flip= of a view" if "Flip" in kind.__name__ else place


_Function = TypeVar("_Function", bound=Callable[..., Any])


class KnownArguments:
    """Base of a class that rejects unknown keyword arguments and names their replacements.

    Args:
        of: Entry of `COUNTERPARTS`; without one, only nearest matches are named.
    """

    _of = ""

    def __init_subclass__(cls, of: str = "", **more: Any) -> None:
        super().__init_subclass__(**more)
        cls._of = of or cls._of
        if cls.__module__.startswith(("headrace.views.", "headrace.augment.", "headrace.fields.")):
            _classes[cls.__name__.lower()] = cls

    def __new__(cls, *_: Any, **given: Any) -> Self:
        """Raise UnknownArgumentError for unknown keywords."""
        _refuse_unknown(cls.__name__, cls.__init__, given, of=cls._of)
        return super().__new__(cls)


def known_arguments(called: str) -> Callable[[_Function], _Function]:
    """Return a decorator that makes a function do the same. `called`: its public name, and entry of `COUNTERPARTS`."""

    def decorate(function: _Function) -> _Function:
        @wraps(function)
        def checked(*args: Any, **given: Any) -> Any:
            _refuse_unknown(called, function, given, of=called)
            return function(*args, **given)

        return cast(_Function, checked)

    return decorate


_ADVICE = {
    "Loader": " (a script that keeps its Dataset can keep all of DataLoader's arguments: headrace.ThreadDataLoader)",
}


@lru_cache(maxsize=256)
def _keywords(function: Callable[..., Any]) -> frozenset[str] | None:
    """Return the names of a function's arguments; None if it takes any."""
    parameters = signature(function, follow_wrapped=False).parameters.values()
    takes_any = any(each.kind is Parameter.VAR_KEYWORD for each in parameters)
    return None if takes_any else frozenset(each.name for each in parameters)


def _refuse_unknown(called: str, function: Callable[..., Any], given: Mapping[str, object], *, of: str) -> None:
    """Raise UnknownArgumentError if any given argument is unknown, with the replacement or nearest match of each."""
    known = _keywords(function)
    if known is None or given.keys() <= known:
        return
    from difflib import get_close_matches

    counterparts, instead = COUNTERPARTS.get(of, {}), []
    for name in [name for name in given if name not in known]:
        near = get_close_matches(name, [*known, *counterparts], n=1)
        guess = f"did you mean {near[0]}=?" if near else f"{called} has no such argument"
        instead.append(f"{name}=: {counterparts.get(name, guess)}")
    names = ", ".join(f"{name}=" for name in given if name not in known)
    raise UnknownArgumentError(
        f"{called}: expected arguments of {called}, got {names}; instead of {'; instead of '.join(instead)}"
        + _ADVICE.get(of, "")
    )
