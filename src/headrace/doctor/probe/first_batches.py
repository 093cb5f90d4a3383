"""Digests of first batches: keys, values, opened files, and random generators; and first inputs of a replica.

Workers and ranks that draw the same numbers, or make the same samples, show in them, and evaluations that use files of
the training.
"""

from __future__ import annotations

import hashlib
import random
import sys
from functools import partial
from itertools import islice
from types import FunctionType, MethodType
from typing import Any, Callable

from .batch_production import ProducedBatch
from .batch_values import MOST_LEAVES, as_array, parts_of
from .column_sources import LEAVES, members_of, reached
from .described_values import class_name
from .evidence_file import EvidenceFile
from .held_objects import named_in
from .opened_files import OpenedFiles
from .sample_digests import digest_of_keys
from .settings import SessionClock

MOST_FIRST = 2
_MOST_ROWS = 8
_MOST_BYTES = 32 << 20
"""Maximum size of the digested rows of a leaf."""
_MOST_LEVELS, _MOST_OBJECTS, _MOST_GENERATORS = 6, 1_000, 16
_LIBRARIES = ("torch", "torchvision", "numpy", "PIL", "cv2", "builtins")
"""Libraries whose classes keep no generator of their own in their modules."""

States = dict[str, str]
"""Digests of generators' states, by name."""


class FirstBatchDigests:
    """Digests of one fetcher's first batches."""

    def __init__(self, evidence: EvidenceFile, fetcher: Any, opened: OpenedFiles) -> None:
        self._evidence = evidence
        self._opened = opened
        self._is_stream = hasattr(fetcher, "dataset_iter")
        self._generators: dict[str, Callable[[], Any]] = {} if self._is_stream else generators_of(fetcher.dataset)
        self._before: States = {}

    def begin(self) -> None:
        self._before = self._states()
        self._opened.noted = []

    def end(self, batch: ProducedBatch, keys: Any, values: Any) -> None:
        noted, self._opened.noted = self._opened.noted or [], None
        after = self._states()
        rows = [(name, before, after[name]) for name, before in self._before.items()]
        drawn = None if self._is_stream else digest_of_keys(keys)
        files = [self._evidence.name(path) for path in noted]
        self._evidence.write(("first", batch.epoch, batch.index, drawn, _leaves(values), rows, files))

    def _states(self) -> States:
        return {name: _digest_of_text(repr(_plain(state()))).hex() for name, state in self._generators.items()}


class ReplicaInputs:
    """Digests of the first inputs that a DistributedDataParallel of all ranks trains on."""

    def __init__(self, evidence: EvidenceFile, clock: SessionClock) -> None:
        self._evidence, self._clock = evidence, clock
        self._inputs: list[list[tuple[str, str, int]]] = []

    def called(self, module: Any, args: Any, kwargs: Any) -> None:
        """Note a call of the model in a step."""
        model = vars(module).get("_modules", {}).get("_orig_mod", module)  # of torch.compile
        if len(self._inputs) == MOST_FIRST or not _is_whole_replica(model):
            return
        self._inputs.append(_leaves([args, kwargs], devices=("cpu", "cuda")))
        if len(self._inputs) == MOST_FIRST:
            self._evidence.write(("facts", self._clock.now_us(), {"replica_inputs": self._inputs}))


def _is_whole_replica(model: Any) -> bool:
    torch, parallel = sys.modules["torch"], sys.modules.get("torch.nn.parallel")
    if parallel is None or not isinstance(model, parallel.DistributedDataParallel):
        return False
    ranks = torch.distributed.get_world_size()
    group: int = torch.distributed.get_world_size(model.process_group)
    return group == ranks > 1 and bool(model.training and torch.is_grad_enabled())


def generators_of(dataset: Any) -> dict[str, Callable[[], Any]]:
    """Return functions that read the states of the global generators, and of generators that a dataset reaches."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    found: dict[str, Callable[[], Any]] = {"random": random.getstate}
    if numpy is not None:
        found["numpy.random"] = partial(numpy.random.get_state, legacy=False)
    if torch is not None:
        found["torch"] = torch.get_rng_state
    own = reached([(dataset, 0)], _is_generator, _MOST_LEVELS, _MOST_OBJECTS, _inner)
    for number, generator in enumerate(islice(own, _MOST_GENERATORS), start=1):
        found[f"{class_name(type(generator))} {number}"] = partial(_state, generator)
    return found


def _is_generator(thing: Any) -> bool:
    numpy, torch = sys.modules.get("numpy.random"), sys.modules.get("torch")
    kinds: tuple[type, ...] = (random.Random,)
    kinds += () if numpy is None else (numpy.Generator, numpy.RandomState)
    kinds += () if torch is None else (torch.Generator,)
    return issubclass(type(thing), kinds) and not issubclass(type(thing), random.SystemRandom)


def _state(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    if hasattr(generator, "bit_generator"):
        return generator.bit_generator.state
    return generator.get_state() if hasattr(generator, "initial_seed") else generator.get_state(legacy=False)


def _plain(state: Any) -> Any:
    """Return a state whose `repr` is complete: arrays are bytes."""
    if isinstance(state, dict):
        return [(key, _plain(value)) for key, value in state.items()]
    array = as_array(state)
    return state if array is None else array.tobytes()


def _inner(thing: Any) -> list[Any]:
    """Return what an object holds, and what the code of its class names."""
    kind = type(thing)
    if kind is FunctionType:
        members = named_in(thing)
    elif kind is MethodType:
        members = [thing.__self__, thing.__func__]
    elif kind is partial:
        members = [thing.func, *thing.args, *thing.keywords.values()]
    else:
        members = [*members_of(thing).values(), *_functions_of(kind)]
    return [one for one in members if type(one) in (FunctionType, MethodType) or not issubclass(type(one), LEAVES)]


def _functions_of(kind: type) -> list[Any]:
    own = [base for base in kind.__mro__ if base.__module__.partition(".")[0] not in _LIBRARIES]
    return [value for base in own for value in vars(base).values() if type(value) is FunctionType]


def _leaves(batch: Any, devices: tuple[str, ...] = ("cpu",)) -> list[tuple[str, str, int]]:
    """Return path, digest and number of distinct rows of each leaf; no digest if its values cannot be read."""
    found = []
    for path, value in islice(parts_of(batch, []), MOST_LEAVES):
        try:
            rows = _rows(value, devices)
        except Exception:  # a user class may do anything
            rows = None
        digest = "" if rows is None else _digest(b"".join(rows)).hex()
        found.append((".".join(map(str, path)), digest, len(set(rows or ()))))
    return found


def _rows(value: Any, devices: tuple[str, ...]) -> list[bytes] | None:
    """Return digests of a leaf's first rows; None for other objects, and for those on another device."""
    if value is None or isinstance(value, (str, bytes, int, float)):
        return [_digest_of_text(repr(value))]
    device = getattr(value, "device", None)
    if getattr(device, "type", "cpu") not in devices:
        return None
    array = as_array(value[:_MOST_ROWS] if getattr(value, "ndim", 0) else value)
    if array is None:
        return None
    first = array[:_MOST_ROWS] if array.ndim else array[None]
    kind = f"{first.dtype}{first.shape[1:]}".encode()
    return None if first.nbytes > _MOST_BYTES else [_digest(kind, row.tobytes()) for row in first]


def _digest(*parts: bytes) -> bytes:
    made = hashlib.blake2b(digest_size=8)
    for part in parts:
        made.update(part)
    return made.digest()


def _digest_of_text(text: str) -> bytes:
    return _digest(text.encode(errors="replace"))
