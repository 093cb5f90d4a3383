"""Live objects of the user's program: attributes, read without running user code, loaders and random generators."""

from __future__ import annotations

import gc
import math
import random
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice
from types import BuiltinFunctionType, FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, Callable, NamedTuple

from .leaves import as_array

MOST_MEMBERS = 1024
"""Attributes of an object, elements of a container and columns of a table that are searched."""
LEAVES = (
    *(str, bytes, int, float, complex, type(None)),
    *(type, ModuleType, FunctionType, BuiltinFunctionType, MethodType),
)
"""Types of objects that hold no columns."""
COMPOSED = ""
"""Label of the dataset that a wrapper takes its samples from; wrapper and dataset share column names."""
_COMPOSERS = {
    frozenset({"dataset", "indices"}): "dataset",
    frozenset({"datasets", "cumulative_sizes"}): "datasets",
    frozenset({"_data", "_indices", "_fingerprint"}): "_data",
}
"""Attribute of the inner dataset, by the attributes of torch's Subset and ConcatDataset and Hugging Face's Dataset."""


def class_name(kind: type) -> str:
    return f"{type.__getattribute__(kind, '__module__')}.{type.__getattribute__(kind, '__qualname__')}"


def attributes_of(thing: Any) -> dict[str, Any]:
    """Return an object's attributes from `__dict__` and slots; for a module, its parameters, buffers and submodules."""
    found: dict[str, Any] = {}
    for base in type.__getattribute__(type(thing), "__mro__"):
        own = vars(base)
        state = own.get("__dict__")
        if type(state) in (GetSetDescriptorType, MemberDescriptorType):
            held = state.__get__(thing)
            for name, value in dict.items(held) if issubclass(type(held), dict) else ():  # a class has no dict
                if type(name) is str:
                    found.setdefault(name, value)
        for name, slot in own.items():
            if type(slot) is MemberDescriptorType and not name.startswith("__"):
                try:
                    found.setdefault(name, slot.__get__(thing))
                except AttributeError:  # not set
                    continue
    if "_parameters" in found and "_buffers" in found:
        return _module_attributes(found)
    return found


def _module_attributes(state: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes set on a torch.nn.Module, rather than its internal state."""
    found: dict[str, Any] = {}
    for kept in ("_parameters", "_buffers", "_modules"):
        if isinstance(state.get(kept), dict):
            found.update(state[kept])
    torch = sys.modules.get("torch.nn")
    usual = vars(torch.Module()) if torch is not None else {}
    found.update((name, value) for name, value in state.items() if name not in usual)
    return found


def is_instance(thing: Any, module: str, *names: str) -> bool:
    """Return True if `thing` is an instance of a library's class. Never imports the library."""
    found = sys.modules.get(module)
    # Not vars(), which would trigger the import of a lazily imported library.
    library = object.__getattribute__(found, "__dict__") if isinstance(found, ModuleType) else {}
    return any(isinstance(library.get(name), type) and issubclass(type(thing), library[name]) for name in names)


def is_struct(arrow: Any) -> bool:
    return str(arrow.type).startswith("struct<")


def reached(
    roots: Iterable[tuple[Any, int]],
    is_wanted: Callable[[Any], bool],
    levels: int,
    objects: int,
    inner: Callable[[Any], Iterable[Any]],
) -> Iterator[Any]:
    """Yield the outermost wanted objects reachable from `roots` through `inner`, nearest first."""
    seen: set[int] = set()
    waiting = deque(roots)
    while waiting and len(seen) < objects:
        thing, level = waiting.popleft()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if is_wanted(thing):
            yield thing
        elif level < levels:
            try:
                waiting.extend((one, level + 1) for one in inner(thing))
            except Exception:  # of a library's container that cannot read its own elements
                continue


def members_of(thing: Any) -> dict[str, Any]:
    """Return the elements of a container, the columns of a table or the attributes of an object, by label."""
    kind = type(thing)
    if issubclass(kind, dict):
        return _labelled(dict.items(thing)) if dict.__len__(thing) <= MOST_MEMBERS else {}
    if issubclass(kind, (list, tuple)):
        base: Any = list if issubclass(kind, list) else tuple
        is_short = base.__len__(thing) <= MOST_MEMBERS
        return {f"[{place}]": each for place, each in enumerate(base.__iter__(thing))} if is_short else {}
    if is_instance(thing, "numpy", "ndarray"):
        return _labelled((name, thing[name]) for name in thing.dtype.names or ())
    if is_instance(thing, "pandas", "DataFrame"):
        index = {} if is_instance(thing.index, "pandas", "RangeIndex") else {".index": thing.index}
        return {**_labelled((name, thing.iloc[:, place]) for place, name in enumerate(thing.columns)), **index}
    if is_instance(thing, "pyarrow", "Table", "RecordBatch"):
        return _labelled(zip(thing.schema.names, thing.columns))
    if is_instance(thing, "pyarrow", "ChunkedArray", "Array") and is_struct(thing):
        return _labelled(zip((field.name for field in thing.type), thing.flatten()))
    return _attributes(thing)


def _attributes(thing: Any) -> dict[str, Any]:
    """Return the attributes of an object, with the wrapped dataset, if any, as `COMPOSED`."""
    found = attributes_of(thing)
    inner = next((inner for needed, inner in _COMPOSERS.items() if needed <= found.keys()), None)
    composed = {} if inner is None else {COMPOSED: found.pop(inner)}
    if inner == "_data":  # a Hugging Face table, which wraps pyarrow's
        table, indices = (attributes_of(one).get("table") for one in (composed[COMPOSED], found["_indices"]))
        return {COMPOSED: table} if indices is None else {COMPOSED: table, ".indices": indices.column(0)}
    return {**composed, **_labelled(found.items())}


def _labelled(items: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    return {f".{name}": thing for name, thing in islice(items, MOST_MEMBERS) if type(name) in (str, int)}


def named_in(function: FunctionType) -> list[Any]:
    """Return the objects that a function's code references: globals and closure variables."""
    named = [function.__globals__.get(name) for name in function.__code__.co_names]
    return named + [cell.cell_contents for cell in function.__closure__ or ()]


MOST_NAMES = 64
MOST_TEXT = 200
MOST_LEVELS = 4
"""Maximum levels of nested samplers."""
_INNER = ("sampler", "batch_sampler")
HANDLES = frozenset(
    (
        *("zipfile.ZipFile", "tarfile.TarFile", "h5py._hl.files.File", "h5py._hl.dataset.Dataset"),
        *("h5py._hl.group.Group", "sqlite3.Connection", "lmdb.Environment", "builtins.Environment"),
        *("_io.BufferedReader", "_io.BufferedRandom", "_io.FileIO", "_io.TextIOWrapper"),
    )
)
"""Classes of handles that a fork shares: their processes move one file position, or use one connection."""
_HF = {"_data", "_indices", "_fingerprint", "_info"}
_DECODED = ("Image", "Audio", "Video")
"""Features of Hugging Face datasets that are decoded at each access."""
_PLAIN_BASES = ("builtins.object", "typing.Generic", "typing.Protocol", "abc.ABC")


def described_loader(loader: Any, wrapper: Any) -> dict[str, Any]:
    """Describe a DataLoader. `wrapper` is the library object that iterates it, or None."""
    kind = type(loader.dataset)
    bases = [class_name(base) for base in type.__getattribute__(kind, "__mro__")[1:]]
    found = {
        "dataset": {"class": class_name(kind), "bases": [name for name in bases if name not in _PLAIN_BASES]},
        "sampler": _order(loader.sampler),
        "batch_sampler": _order(loader.batch_sampler),
        **held_by(loader.dataset),
        "drop_last": bool(loader.drop_last),
        "generator": loader.generator is not None,
    }
    return found if wrapper is None else {**found, "wrapper": {"class": class_name(type(wrapper))}}


def held_by(dataset: Any) -> dict[str, Any]:
    """Return open handles and the columns that Hugging Face datasets decode, of a dataset and its attributes."""
    found: dict[str, Any] = {"handles": [], "decoded": [], "plain": []}
    for one in (dataset, *islice(attributes_of(dataset).values(), MOST_NAMES)):
        if class_name(type(one)) in HANDLES and _is_open(one):
            found["handles"].append(class_name(type(one)))
        held = attributes_of(one) if attributes_of(one).keys() >= _HF else {}
        features = getattr(held.get("_info"), "features", None) or {}
        chosen = held.get("_format_columns")
        for name in list(features)[:MOST_MEMBERS] if held.get("_format_type") != "arrow" else ():
            if chosen is None or name in chosen:
                is_decoded = type(features[name]).__name__ in _DECODED and getattr(features[name], "decode", True)
                found["decoded" if is_decoded else "plain"].append(name)
    return {name: values for name, values in found.items() if values}


def _is_open(handle: Any) -> bool:
    """Return True unless a file is closed, by the attribute of a zip file, tar file or Python file."""
    held = attributes_of(handle)
    return held.get("fp", handle) is not None and not (held.get("closed") or getattr(handle, "closed", False))


def sampler_epoch(loader: Any) -> int | None:
    """Return the epoch that a loader's sampler shuffles by; None if it has none."""
    sampler = getattr(loader, "sampler", None)
    epoch = None if sampler is None else attributes_of(sampler).get("epoch")
    return epoch if type(epoch) is int else None


def _order(sampler: Any, level: int = 0) -> dict[str, Any] | None:
    """Describe a sampler by its class, its plain attributes, and its inner sampler."""
    if sampler is None:
        return None
    held: dict[str, Any] = {}
    for name, value in islice(attributes_of(sampler).items(), MOST_NAMES):
        if is_plain(value):
            held[name] = value
        elif name in _INNER and level < MOST_LEVELS:
            held[name] = _order(value, level + 1)
    return {"class": class_name(type(sampler)), "attributes": held}


def is_plain(value: Any) -> bool:
    """Return True if JSON can represent the value exactly."""
    if type(value) is float:
        return math.isfinite(value)
    if type(value) is int:
        return -(1 << 63) <= value < 1 << 63
    return value is None or type(value) is bool or (type(value) is str and len(value) <= MOST_TEXT)


GLOBAL = ("random", "numpy.random", "torch")
_MOST_LEVELS, _MOST_OBJECTS, _MOST_GENERATORS = 6, 1_000, 16
_LIBRARIES = ("torch", "torchvision", "numpy", "PIL", "cv2", "builtins")
"""Libraries whose classes keep no generator of their own in their modules."""
_LINKS = ("generator", "map", "filter", "zip", "enumerate", "chain", "islice")
"""Iterators of which a stream is made, by the name of their class. What they hold has no names."""
State = Callable[[], Any]
"""Function that reads the state of a generator."""


class RandomGenerator(NamedTuple):
    state: State
    restore: Callable[[Any], None]
    reseed: Callable[[int], None]


def global_generators() -> dict[str, RandomGenerator]:
    """Return the global generators, by name."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    found = {"random": RandomGenerator(random.getstate, random.setstate, random.seed)}
    if numpy is not None:
        state = partial(numpy.random.get_state, legacy=False)
        found["numpy.random"] = RandomGenerator(state, numpy.random.set_state, numpy.random.seed)
    if torch is not None:
        reseed = torch.default_generator.manual_seed
        found["torch"] = RandomGenerator(torch.get_rng_state, torch.set_rng_state, reseed)
    return found


def generators_held(generators: Mapping[str, RandomGenerator]) -> Callable[[], None]:
    """Return a function that restores the current states of generators."""
    held = [(one.state(), one.restore) for one in generators.values()]

    def put_back() -> None:
        for state, restore in held:
            restore(state)

    return put_back


@contextmanager
def generators_kept() -> Iterator[None]:
    """Restore the global random generators on exit."""
    put_back = generators_held(global_generators())
    try:
        yield
    finally:
        put_back()


def generators_of(*holders: Any) -> dict[str, RandomGenerator]:
    """Return the global generators, and those that a dataset, or an iterator that waits for its `next()`, reaches."""
    found = global_generators()
    own = reached([(one, 0) for one in holders], _is_generator, _MOST_LEVELS, _MOST_OBJECTS, _inner)
    for number, generator in enumerate(islice(own, _MOST_GENERATORS), start=1):
        found[f"{class_name(type(generator))} {number}"] = _accessed(generator)
    return found


def state_text(state: Any) -> str:
    return repr(_plain(state))


def _plain(state: Any) -> Any:
    if isinstance(state, dict):
        return [(key, _plain(value)) for key, value in state.items()]
    array = as_array(state)
    return state if array is None else array.tobytes()


def _is_generator(thing: Any) -> bool:
    numpy, torch = sys.modules.get("numpy.random"), sys.modules.get("torch")
    kinds: tuple[type, ...] = (random.Random,)
    kinds += () if numpy is None else (numpy.Generator, numpy.RandomState)
    kinds += () if torch is None else (torch.Generator,)
    return issubclass(type(thing), kinds) and not issubclass(type(thing), random.SystemRandom)


def _accessed(generator: Any) -> RandomGenerator:
    if isinstance(generator, random.Random):
        return RandomGenerator(generator.getstate, generator.setstate, generator.seed)
    if hasattr(generator, "initial_seed"):
        return RandomGenerator(generator.get_state, generator.set_state, generator.manual_seed)
    if not hasattr(generator, "bit_generator"):
        return RandomGenerator(partial(generator.get_state, legacy=False), generator.set_state, generator.seed)
    bits = generator.bit_generator
    restore = partial(setattr, bits, "state")
    return RandomGenerator(lambda: bits.state, restore, lambda seed: restore(type(bits)(seed).state))


def _inner(thing: Any) -> list[Any]:
    """Return what an object holds, and what the code of its class names."""
    kind = type(thing)
    if kind is FunctionType:
        members = named_in(thing)
    elif kind is MethodType:
        members = [thing.__self__, thing.__func__]
    elif kind is partial:
        members = [thing.func, *thing.args, *thing.keywords.values()]
    elif kind.__name__ in _LINKS:
        members = gc.get_referents(thing)
    else:
        members = [*members_of(thing).values(), *_functions_of(kind)]
    return [one for one in members if type(one) in (FunctionType, MethodType) or not issubclass(type(one), LEAVES)]


def _functions_of(kind: type) -> list[Any]:
    own = [base for base in kind.__mro__ if base.__module__.partition(".")[0] not in _LIBRARIES]
    return [value for base in own for value in vars(base).values() if type(value) is FunctionType]
