"""First inputs of the model: what ranks of one replica train on, what the loop makes of images, and padded texts."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Any, Callable

from ..patches import Fault, HookGuard, Patches
from .digests import MOST_FIRST, row_digests
from .leaves import MOST_LEAVES, as_array, leaves_of

if TYPE_CHECKING:
    from ..evidence_file import EvidenceFile
    from ..settings import SessionClock

MOST_PAIRS = 4
_VALUES = 4096
"""Values of a channel that a scale and a shift are fitted to."""
_TEXTS, _LEAST_TOKENS, _MOST_TOKENS = 16, 6, 256
"""Rows of token ids whose gradient is written, and the length that they have."""


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
