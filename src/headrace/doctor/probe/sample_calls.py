"""Library calls during the production of one sample: function, line of user code, and duration.

Besides the calls that are stages, some functions of numpy, torch and scipy are traced. Hooking them permanently is too
expensive, so they are replaced only while a sample is traced, and only calls from user code count.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from types import FunctionType
from typing import TYPE_CHECKING, Any, Callable

from .batch_leaves import leaf_of, leaves_of
from .described_values import class_name
from .patches import Function, HookGuard
from .stack_sampler import is_users, users_frame

if TYPE_CHECKING:
    from .stages import Stages

MOST_CALLS = 64
WATCHED: dict[str, tuple[str, ...]] = {
    "numpy": (
        *("percentile", "quantile", "nanpercentile", "nanquantile", "median", "histogram", "unique", "sort", "argsort"),
        *("array", "asarray", "ascontiguousarray", "pad", "interp", "rot90", "flip", "fliplr", "flipud", "frombuffer"),
        *("apply_along_axis", "clip", "convolve", "einsum"),
    ),
    "numpy.random": ("choice", "normal", "permutation", "rand", "randint", "randn", "random", "shuffle", "uniform"),
    "random": ("choice", "choices", "randint", "random", "sample", "shuffle", "uniform"),
    "torch": (
        *("quantile", "nanquantile", "median", "kthvalue", "sort", "histc", "rot90", "flip", "from_numpy", "tensor"),
        *("as_tensor", "rand", "randn", "randint", "randperm"),
    ),
    "torch.Tensor": ("quantile", "nanquantile", "median", "kthvalue", "sort", "histc", "flip"),
    "torch.nn.functional": ("interpolate", "grid_sample", "pad", "conv2d", "avg_pool2d", "max_pool2d"),
    "scipy.ndimage": ("zoom", "rotate", "shift", "affine_transform", "map_coordinates", "gaussian_filter"),
    "skimage.transform": ("resize", "rescale", "rotate", "warp"),
    "PIL.ImageEnhance._Enhance": ("enhance",),
    **{f"PIL.ImageEnhance.{name}": ("__init__",) for name in ("Brightness", "Color", "Contrast", "Sharpness")},
    "PIL.ImageOps": ("autocontrast", "equalize", "fit", "flip", "mirror", "pad", "posterize", "solarize"),
    "pandas.core.indexing._LocationIndexer": ("__getitem__",),
    "pandas": ("read_csv", "read_json", "read_parquet"),
    "json": ("load", "loads"),
    "pickle": ("load", "loads"),
}
"""Functions traced only in sampled production, by module or class."""
CALLED = {"pandas.core.indexing._LocationIndexer": "pandas.DataFrame.loc", "PIL.ImageEnhance.": "PIL.ImageEnhance"}
"""Public names of functions that users know under another name, by the prefix of the class name."""
_LONGEST_S = 1.0


class SampleCalls:
    """Calls of one sample, in the order in which they began. Calls inside a library's call are left out.

    Nested calls of the same category count if user code makes them: the parts of a script's own transform show what it
    does.
    """

    def __init__(self, name: Callable[[str], int], stages: dict[int, str], guard: HookGuard) -> None:
        """`name` returns a text's number in the evidence; `stages` maps numbers to stage names."""
        self._name = name
        self._stages = stages
        self.rows: list[list[Any]] = []
        """Stage, place and facts of each call."""
        self._open: list[tuple[int, int]] = []
        """Row, and id of the user's frame, of each call that has not ended."""
        self.begun = time.monotonic_ns()
        self.begin, self.end = guard(self._begin), guard(self._end)

    def _begin(
        self, stage: int, subject: Any, args: tuple[Any, ...], kwargs: Facts, is_outermost: bool
    ) -> tuple[int, int] | None:
        """Note the start of a call; return None if it does not count. `is_outermost` refers to its category."""
        if len(self.rows) >= MOST_CALLS:
            return None
        frame = users_frame(sys._getframe(1))
        if not is_outermost and self._open and self._open[-1][1] == id(frame):
            return None
        facts = facts_before(self._stages[stage], subject, args, kwargs)
        if facts is None:
            return None
        row = self._add(stage, frame, facts)
        self._open.append((row, id(frame)))
        return row, time.monotonic_ns()

    def _end(self, begun: tuple[int, int], result: Any) -> None:
        row, start = begun
        taken = time.monotonic_ns() - start
        while self._open and self._open[-1][0] >= row:
            self._open.pop()
        stage, _, facts = self.rows[row]
        facts["us"] = taken // 1000
        facts.update(facts_after(self._stages[stage], facts, result))

    def _add(self, stage: int, frame: Any, facts: Facts) -> int:
        place = -1
        if frame is not None:
            code = frame.f_code
            place = self._name(f"{code.co_filename}:{frame.f_lineno}:{getattr(code, 'co_qualname', code.co_name)}")
        if self._open:
            facts["inside"] = self._open[-1][0]
        self.rows.append([stage, place, facts])
        return len(self.rows) - 1


class WatchedFunctions:
    """Functions of `WATCHED`, replaced while any thread of the process traces a sample."""

    def __init__(self, stages: Stages, name: Callable[[str], int], guard: HookGuard) -> None:
        self._stages = stages
        self._name = name
        self._lock = threading.Lock()
        self._replaced: list[tuple[Any, str, bool, Any, Any]] = []
        self._held: set[int] = set()
        """Ids of the objects that user modules held at the first trace."""
        stages.at_looks = guard(self._follow)

    def _follow(self, begins: bool) -> None:
        """Replace the functions when the first trace begins, and restore them after the last."""
        if not self._lock.acquire(timeout=_LONGEST_S):  # in the child of a fork the lock's holder may not exist
            return
        try:
            if begins and not self._replaced:
                held = self._held = self._held or _held_by_the_user()
                for module, names in WATCHED.items():
                    owner = _owner(module)
                    for name in names if owner is not None else ():
                        if id(getattr(owner, name, None)) not in held:
                            self._replace(owner, f"{module}.{name}", name)
            elif not self._stages.looked:
                self._put_back()
        finally:
            self._lock.release()

    def _put_back(self) -> None:
        replaced, self._replaced = self._replaced, []
        for owner, name, is_own, original, new in replaced:
            if vars(owner).get(name) is not new:
                continue
            if is_own:
                setattr(owner, name, original)
            else:
                delattr(owner, name)

    def _replace(self, owner: Any, path: str, name: str) -> None:
        original = getattr(owner, name, None)
        if not callable(original):
            return
        public = called(path)
        stage = self._name(f"call:{public}")
        self._stages.names[stage] = f"call:{public}"
        new = _watched(self._stages, stage, original)
        is_own = name in vars(owner)
        setattr(owner, name, new)
        self._replaced.append((owner, name, is_own, original, new))


def called(path: str) -> str:
    return next((name for start, name in CALLED.items() if path.startswith(start)), path)


def _held_by_the_user() -> set[int]:
    """Return the ids of objects in user modules. Replaced at their definition, these objects could not be pickled."""
    held: set[int] = set()
    for name, module in sys.modules.copy().items():
        space = getattr(module, "__dict__", None)
        if type(space) is dict:
            file = space.get("__file__")
            if name == "__main__" or (type(file) is str and is_users(file)):
                held.update(map(id, list(space.values())))
    return held


def _owner(path: str) -> Any:
    """Return an imported module, or a class in one."""
    module = sys.modules.get(path)
    if module is None:
        home, _, name = path.rpartition(".")
        module = getattr(sys.modules.get(home), name, None)
    return module


def _watched(stages: Stages, stage: int, original: Function) -> Function:
    """Return a stand-in that notes calls from user code."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        look = stages.look()
        calls = None if look is None else look.calls
        if calls is None or not is_users(sys._getframe(1).f_code.co_filename):
            return original(*args, **kwargs)
        begun = calls.begin(stage, None, args, kwargs, True)
        result: Any = None
        try:
            result = original(*args, **kwargs)
        finally:
            if begun is not None:
                calls.end(begun, result)
        return result

    return call


Facts = dict[str, Any]
_OF_VALUES = ("call", "decode", "transform")
"""Categories of calls distinguished by the values that they take or return."""


def facts_before(stage: str, subject: Any, args: tuple[Any, ...], kwargs: Facts) -> Facts | None:
    """Return the facts known before a call, or None if there is nothing to report.

    `stage` is `category:label`. `subject` is the called object, for calls identified by their class.
    """
    category, _, label = stage.partition(":")
    first = args[0] if args else next(iter(kwargs.values()), None)
    if label == "Pillow load":
        return _of_picture(first) if getattr(first, "tile", None) else None  # otherwise its pixels are already loaded
    if label.startswith("tokenizers "):
        subject = first
    if subject is not None:
        return {} if type(subject) is FunctionType else {"class": class_name(type(subject))}
    known = _of_value(first) if category in _OF_VALUES else {}
    facts: Facts = {"image": known} if known else {}
    if label == "Pillow filter":
        given = args[1] if len(args) > 1 else kwargs.get("filter")
        facts["filter"] = {"class": class_name(given if isinstance(given, type) else type(given))}
    return facts


def facts_after(stage: str, before: Facts, result: Any) -> Facts:
    """Return the facts of a call's result. `gives` is the kind, shape and dtype of the only value."""
    category, _, label = stage.partition(":")
    if label == "Pillow open":
        return _of_picture(result)
    if category not in _OF_VALUES or label == "Pillow load" or "image" in before:
        return {}
    leaves = leaves_of(result, with_ranges=False)
    is_array = len(leaves) == 1 and leaves[0][1] in ("tensor", "ndarray")
    return {"gives": list(leaves[0][1:4])} if is_array else {}


def _of_picture(image: Any) -> Facts:
    return {"mode": image.mode, "format": getattr(image, "format", None)}


def _of_value(value: Any) -> Facts:
    """Return the shape and dtype of an array, or the mode of a Pillow image; empty for anything else."""
    kind, shape, dtype, *_ = leaf_of(value, with_range=False)
    if kind == "PIL":
        return {"mode": dtype}
    return {"shape": shape, "dtype": dtype} if kind in ("tensor", "ndarray") else {}
