"""Calls of libraries while one sample is produced: which, from which line of the user's code, and how long each took.

Beside the calls that are stages, some of numpy, torch and scipy are followed, too expensive to hook for good: they are
replaced while a sample is looked at, and only calls by the user's own code count.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Callable

from .call_facts import Facts, facts_after, facts_before
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
"""Functions that are followed only in samples that are looked at, by module or class."""
CALLED = {"pandas.core.indexing._LocationIndexer": "pandas.DataFrame.loc", "PIL.ImageEnhance.": "PIL.ImageEnhance"}
"""Names of what users know under others: by how the name of its class begins."""
_LONGEST_S = 1.0


class SampleCalls:
    """Calls of one sample, in the order in which they began. What happens inside a library's call is left out.

    Of a call inside another of the same category, those count that the user's own code makes: in a transform of the
    script's, whose own parts are what says what it does.
    """

    def __init__(self, name: Callable[[str], int], stages: dict[int, str], guard: HookGuard) -> None:
        """`name` gives a text's number in the evidence, `stages` the texts of stages."""
        self._name = name
        self._stages = stages
        self.rows: list[list[Any]] = []
        """Stage, place and facts."""
        self._open: list[tuple[int, int]] = []
        """Row and user's frame, by its id, of the calls that have begun and not ended."""
        self.begun = time.monotonic_ns()
        self.begin, self.end = guard(self._begin), guard(self._end)

    def _begin(
        self, stage: int, subject: Any, args: tuple[Any, ...], kwargs: Facts, is_outermost: bool
    ) -> tuple[int, int] | None:
        """Note the beginning of a call; None where it does not count. `is_outermost` of its category."""
        if len(self.rows) >= MOST_CALLS:
            return None
        frame = users_frame(sys._getframe(1))
        if not is_outermost and self._open and self._open[-1][1] == id(frame):
            return None
        try:
            facts = facts_before(self._stages[stage], subject, args, kwargs)
        except Exception:  # arguments that the library itself may not take
            facts = {}
        if facts is None:
            return None
        row = self._add(stage, frame, facts)
        self._open.append((row, id(frame)))
        return row, time.monotonic_ns()

    def _end(self, begun: tuple[int, int], result: Any) -> None:
        """Note the end of a call that began as `begin` said."""
        row, start = begun
        taken = time.monotonic_ns() - start
        while self._open and self._open[-1][0] >= row:
            self._open.pop()
        stage, _, facts = self.rows[row]
        facts["us"] = taken // 1000
        with contextlib.suppress(Exception):  # a class of the user's own may do anything
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
    """Functions of `WATCHED`, replaced while any thread of the process looks at a sample."""

    def __init__(self, stages: Stages, name: Callable[[str], int], guard: HookGuard) -> None:
        self._stages = stages
        self._name = name
        self._lock = threading.Lock()
        self._replaced: list[tuple[Any, str, bool, Any, Any]] = []
        self._held: set[int] = set()
        """Ids of what the user's modules held at the first look."""
        stages.at_looks = guard(self._follow)

    def _follow(self, begins: bool) -> None:
        """Replace them as the first look begins, and put them back once there is none."""
        if not self._lock.acquire(timeout=_LONGEST_S):  # in the child of a fork its holder may not exist
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
    """Return the name under which users know a function."""
    return next((name for start, name in CALLED.items() if path.startswith(start)), path)


def _held_by_the_user() -> set[int]:
    """Return the ids of what modules of the user's hold: replaced where it is defined, none of it could be pickled."""
    held: set[int] = set()
    for name, module in sys.modules.copy().items():
        space = getattr(module, "__dict__", None)
        if type(space) is dict:
            file = space.get("__file__")
            if name == "__main__" or (type(file) is str and is_users(file)):
                held.update(map(id, list(space.values())))
    return held


def _owner(path: str) -> Any:
    """Return a module that is imported, or a class of one."""
    module = sys.modules.get(path)
    if module is None:
        home, _, name = path.rpartition(".")
        module = getattr(sys.modules.get(home), name, None)
    return module


def _watched(stages: Stages, stage: int, original: Function) -> Function:
    """Return the stand-in of a function whose calls by the user's own code are noted."""

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
