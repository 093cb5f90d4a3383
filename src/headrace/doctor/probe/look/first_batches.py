"""First batches of a process: what made them, the numbers of their dataset, and what the model makes of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Callable

from ..patches import Fault, HookGuard, Patches
from .digests import digest_of_keys, digest_of_text, row_digests
from .leaves import MOST_LEAVES, as_array, leaves_of
from .objects import GLOBAL, LEAVES, attributes_of, class_name, generators_of, state_text

if TYPE_CHECKING:
    from ..batch_production import OpenedFiles, ProducedBatch
    from ..evidence_file import EvidenceFile
    from ..settings import SessionClock

MOST_FIRST = 2
MOST_STREAMED = 2000
"""Batches of a stream, which has no keys, whose opened files are written in a check."""
_MOST_NUMBERS, _MOST_LEVELS = 64, 3
_LARGEST = 1e15
_LIBRARIES = ("torch.", "numpy.", "builtins", "PIL.", "collections")
MOST_PAIRS = 4
_VALUES = 4096
"""Values of a channel that a scale and a shift are fitted to."""
_TEXTS, _LEAST_TOKENS, _MOST_TOKENS = 16, 6, 256
"""Rows of token ids whose gradient is written, and the length that they have."""


class FirstBatchDigests:
    """Digests of one fetcher's first batches: keys, values, opened files, generators, and the dataset's state."""

    def __init__(
        self, evidence: EvidenceFile, clock: SessionClock, fetcher: Any, opened: OpenedFiles, *, has_state: bool
    ) -> None:
        """`has_state`: the numbers of the dataset are written as well."""
        self._evidence, self._clock, self._opened = evidence, clock, opened
        self._dataset = fetcher.dataset if has_state else None
        self._is_stream = hasattr(fetcher, "dataset_iter")
        self._generators = generators_of(fetcher.dataset)
        self._before: dict[str, str] = {}
        self._left = MOST_FIRST

    def begin(self, fetcher: Any) -> None:
        if self._is_stream and self._left > 0:  # the stream's code may make generators as it runs
            self._generators = generators_of(fetcher.dataset, fetcher.dataset_iter)
        self._before = self._states()
        self._opened.noted = []

    def end(self, batch: ProducedBatch, keys: Any, values: Any) -> None:
        """Write the batch, and whether a global generator was drawn from: samples then depend on their worker.

        Batches after the first ones have files and state only.
        """
        noted, self._opened.noted = self._opened.noted or [], None
        before, after = self._before, self._states()
        files = [self._evidence.name(path) for path in noted]
        rows = [(name, before[name], after[name]) for name in before] if self._left > 0 else []
        drawn = None if self._is_stream else digest_of_keys(keys)
        state = numbers_of(self._dataset)
        digests = row_digests(values) if self._left > 0 else []
        self._left -= 1
        self._evidence.write(("first", batch.epoch, batch.index, drawn, digests, rows, files, state))
        if any(before[name] != after[name] for name in GLOBAL if name in before):
            self._evidence.write(("facts", self._clock.now_us(), {"draws": True}))

    def _states(self) -> dict[str, str]:
        return {name: digest_of_text(state_text(one.state())).hex() for name, one in self._generators.items()}


def base_of(dataset: Any, keys: list[Any]) -> tuple[str, list[Any]]:
    """Return the identity of the dataset behind torch's Subsets, and the keys as its indices."""
    while type(dataset).__name__ == "Subset" and hasattr(dataset, "indices"):
        try:
            keys = [key if key is None else int(dataset.indices[key]) for key in keys]
        except Exception:  # a sampler that draws other keys
            break
        dataset = dataset.dataset
    return f"{class_name(type(dataset))} {id(dataset):x}", keys


def numbers_of(dataset: Any) -> dict[str, float]:
    """Return the numbers among the attributes of a dataset and of the user's objects that it holds, by path."""
    found: dict[str, float] = {}
    for name, value in _numbers(dataset, "", _MOST_LEVELS):
        found[name] = value
        if len(found) == _MOST_NUMBERS:
            break
    return found


def _numbers(thing: Any, path: str, levels: int) -> Iterator[tuple[str, float]]:
    for name, value in attributes_of(thing).items():
        if type(value) in (int, float, bool):
            if abs(value) < _LARGEST:
                yield path + name, float(value)
        elif levels > 1 and not isinstance(value, LEAVES) and (name == "dataset" or _is_users(type(value))):
            yield from _numbers(value, f"{path}{name}.", levels - 1)


def _is_users(kind: type) -> bool:
    return not class_name(kind).startswith(_LIBRARIES)


class ModelInputs:
    """Facts of a process: `replica_inputs`, `entered` and `embedded`."""

    def __init__(self, evidence: EvidenceFile, clock: SessionClock, *, compares: bool) -> None:
        """`compares`: images of the batch with the model's inputs, and token ids with their gradients."""
        self._evidence, self._clock = evidence, clock
        self._inputs: list[list[tuple[str, str, int]]] = []
        self._left = MOST_PAIRS if compares else 0
        self._batch: Any = None
        self._embedded: list[Any] = []

    def install(self, patches: Patches, torch: Any, is_compiling: Callable[[], bool], fault: Fault) -> None:
        """Follow the gradients of embedded token ids, which padding should not have."""
        guard = HookGuard(fault, "gradients of token ids")
        follow, reached = guard(self._follow), guard(self._reached)

        def embedding(original: Callable[..., Any], ids: Any, *args: Any, **kwargs: Any) -> Any:
            made = original(ids, *args, **kwargs)
            if not is_compiling() and len(self._embedded) < MOST_PAIRS and made.requires_grad:
                follow(torch, ids, made, reached)
            return made

        if self._left:
            patches.around(torch.nn.functional, "embedding", embedding)

    def _follow(self, torch: Any, ids: Any, made: Any, reached: Callable[..., None]) -> None:
        """Wait for the gradient of rows of ids that differ; a CUDA graph under capture cannot be read."""
        is_captured = ids.is_cuda and torch.cuda.is_current_stream_capturing()
        is_text = ids.ndim == 2 and _LEAST_TOKENS <= ids.shape[1] <= _MOST_TOKENS
        if is_text and not is_captured and bool((ids[1:] != ids[:1]).any()):
            made.register_hook(lambda gradient: reached(ids, gradient))

    def _reached(self, ids: Any, gradient: Any) -> None:
        """Write rows of ids, and the largest gradient of each token."""
        if len(self._embedded) < MOST_PAIRS:
            largest = gradient[:_TEXTS].detach().abs().amax(-1).float()
            self._embedded.append((ids[:_TEXTS].tolist(), largest.tolist()))
            self._evidence.write(("facts", self._clock.now_us(), {"embedded": self._embedded}))

    def received(self, batch: Any) -> None:
        """Keep the batch that the model is called with next."""
        self._batch = batch if self._left else None

    def called(self, module: Any, args: Any, kwargs: Any) -> None:
        """Note a call of the model in a step."""
        batch, self._batch = self._batch, None
        if batch is not None:
            entered = _entered(batch, [args, kwargs])
            self._left -= 1
            if entered:
                self._evidence.write(("facts", self._clock.now_us(), {"entered": entered}))
        model = vars(module).get("_modules", {}).get("_orig_mod", module)  # of torch.compile
        if len(self._inputs) == MOST_FIRST or not _is_whole_replica(model):
            return
        self._inputs.append(row_digests([args, kwargs], devices=("cpu", "cuda")))
        if len(self._inputs) == MOST_FIRST:
            self._evidence.write(("facts", self._clock.now_us(), {"replica_inputs": self._inputs}))


def _entered(batch: Any, given: Any) -> list[tuple[str, list[tuple[float, float]]]]:
    """Return path, and scale and shift of each channel, of the images that enter the model up to an affine function."""
    inputs = [
        array for array in (as_array(value) for _, value in islice(leaves_of(given), MOST_LEAVES)) if _is_image(array)
    ]
    found = []
    for path, value in islice(leaves_of(batch), MOST_LEAVES):
        image = as_array(value)
        for entering in inputs if _is_image(image) else ():
            if entering.shape == image.shape:
                pairs = [_fitted(image[:, place], entering[:, place]) for place in range(image.shape[1])]
                fits = [one for one in pairs if one is not None]
                if len(fits) == len(pairs):
                    found.append((".".join(map(str, path)), fits))
    return found


def _is_image(array: Any) -> bool:
    return array is not None and array.ndim == 4 and array.shape[1] == 3


def _fitted(before: Any, after: Any) -> tuple[float, float] | None:
    """Return scale and shift between two channels; None if there is no such relation."""
    numpy = sys.modules["numpy"]
    step = max(1, before.size // _VALUES)
    one, other = (each.reshape(-1)[::step].astype("float64") for each in (before, after))
    spread = one.std()
    if not spread > 0:
        return None
    scale = float(((one - one.mean()) * (other - other.mean())).mean() / spread**2)
    shift = float(other.mean() - scale * one.mean())
    is_near = float(numpy.abs(scale * one + shift - other).max()) <= 1e-3 * max(float(other.std()), 1e-9)
    return (scale, shift) if is_near else None


def _is_whole_replica(model: Any) -> bool:
    torch, parallel = sys.modules["torch"], sys.modules.get("torch.nn.parallel")
    if parallel is None or not isinstance(model, parallel.DistributedDataParallel):
        return False
    ranks = torch.distributed.get_world_size()
    group: int = torch.distributed.get_world_size(model.process_group)
    return group == ranks > 1 and bool(model.training and torch.is_grad_enabled())
