"""Digests of results and batches: what is identical, which batches two runs share, and whether samples are random."""

from __future__ import annotations

import hashlib
import random
import sys
import zlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Callable

from .evidence_file import EvidenceFile
from .patches import Fault, HookGuard, Patches
from .training.received_batches import ATTRIBUTE

if TYPE_CHECKING:
    from .settings import SessionClock
    from .training.state import TrainingState

MOST_DIGEST_BYTES = 256 << 20
"""Digested bytes over all batches: at 1 GB/s, a quarter of a second of the warm-up."""
MOST_TENSORS = 64
"""Maximum number of tensors in a batch that are summarised; a batch with more has no summaries."""
MOST_ROWS = 1024
"""Maximum number of samples in a batch that are identified separately; with more, none is."""
LOOKED_AT = 4
"""Batches per process that are checked for random draws during production.

The check costs 0.1 ms per batch, which counts as production time.
"""
_KEYS = "_headrace_keys"
"""Attribute of a DataLoader iterator: digests of the keys that it drew, batch by batch."""


def random_states() -> Any:
    """Return the states of the global random generators of Python, numpy and torch (CPU)."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    drawn: Any = None
    if numpy is not None:
        drawn = numpy.random.get_state(legacy=False)
        own = drawn["state"]
        drawn = (own["key"].tobytes(), own["pos"]) if drawn["bit_generator"] == "MT19937" else repr(drawn)
    return random.getstate(), drawn, None if torch is None else torch.get_rng_state().numpy().tobytes()


def digest_of_keys(keys: Any) -> str | None:
    """Return the digest of a batch's keys; None if the dataset is iterable or its keys are None."""
    if not isinstance(keys, (list, tuple)) or all(key is None for key in keys):
        return None
    return hashlib.blake2b(repr(keys).encode(errors="replace"), digest_size=8).hexdigest()


def keep_keys(iterator: Any, keys: Any, most: int) -> None:
    """Store the digest of the keys that an iterator has drawn, until `next_keys`; at most `most` are stored."""
    kept = vars(iterator).setdefault(_KEYS, [])
    if len(kept) < most:
        kept.append(digest_of_keys(keys))


def next_keys(iterator: Any) -> str | None:
    """Return the digest of the keys of the batch that an iterator delivers now, in order; None if there is none."""
    kept = vars(iterator).get(_KEYS)
    return kept.pop(0) if kept else None


def _bytes(tensor: Any) -> Any:
    return memoryview(tensor.detach().contiguous().view(-1).view(sys.modules["torch"].uint8).numpy())


class BatchDigests:
    """Digests of the first batches that a process receives, in order, during warm-up.

    Measured steps follow later. This hook is installed below all other hooks, so its cost counts as time waiting for an
    early batch.
    """

    def __init__(self, training: TrainingState, evidence: EvidenceFile, fault: Fault, *, batches: int) -> None:
        self._training = training
        self._evidence = evidence
        self._asked = self._left = batches
        self._free = MOST_DIGEST_BYTES
        guard = HookGuard(fault, "digests of samples")
        self._write, self._keep_keys = guard(self._write_digest), guard(keep_keys)
        self._write_of_pass = guard(self._write_content)

    def install(self, patches: Patches, dataloader: Any) -> None:
        iterator = dataloader._BaseDataLoaderIter
        patches.around(iterator, "__next__", self._next)
        patches.around(iterator, "_next_index", self._next_index)

    def _next(self, original: Callable[[Any], Any], iterator: Any) -> Any:
        batch = original(iterator)
        if self._is_wanted():
            self._write(iterator, batch)
        return batch

    def received(self, pass_: int, batch: Any) -> None:
        """Write the digest of a batch from a loader other than torch's."""
        if self._is_wanted():
            self._write_of_pass(pass_, batch)

    def _is_wanted(self) -> bool:
        warmup = self._training.limit.warmup
        return self._left > 0 and (warmup is None or self._training.steps.number < warmup)

    def _next_index(self, original: Callable[[Any], Any], iterator: Any) -> Any:
        keys = original(iterator)
        if self._left > 0:
            self._keep_keys(iterator, keys, self._asked + 1)
        return keys

    def _write_digest(self, iterator: Any, batch: Any) -> None:
        pass_ = getattr(iterator, ATTRIBUTE, None)
        if pass_ is None:  # not observed: inside a worker, or of a loader that a dataset reads
            return
        self._write_content(pass_.number, batch, next_keys(iterator))

    def _write_content(self, pass_: int, batch: Any, keys: str | None = None) -> None:
        tensors = list(_tensors(batch))
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        if size > self._free or any(tensor.device.type != "cpu" for tensor in tensors):
            self._left = 0
            return
        self._left -= 1
        self._free -= size
        digest = hashlib.blake2b(digest_size=8)
        for tensor in tensors:
            digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
            digest.update(_bytes(tensor))
        summaries = [_summary(tensor) for tensor in tensors] if len(tensors) <= MOST_TENSORS else []
        self._evidence.write(("digest", pass_, digest.hexdigest(), keys, summaries))


def _tensors(batch: Any) -> Iterator[Any]:
    if isinstance(batch, sys.modules["torch"].Tensor):
        yield batch
    elif isinstance(batch, (Mapping, list, tuple)):
        for value in batch.values() if isinstance(batch, Mapping) else batch:
            yield from _tensors(value)


def _summary(tensor: Any) -> list[Any]:
    """Return dtype and shape without the batch dimension, minimum, maximum, and a number that identifies each sample.

    The number is a checksum of labels or tokens, otherwise the mean.
    """
    torch = sys.modules["torch"]
    plain = tensor.detach()
    shape = ",".join(str(size) for size in plain.shape[1:])
    kind = f"{str(plain.dtype).rpartition('.')[2]}[{shape}]"
    if not plain.numel() or plain.dtype is torch.bool or plain.is_complex():
        return [kind, None, None, []]
    low, high = float(plain.min()), float(plain.max())
    rows: list[float] = []
    if plain.dim() and plain.shape[0] <= MOST_ROWS:
        if plain.dtype is not torch.uint8 and plain.dim() <= 2 and not torch.is_floating_point(plain):
            rows = [float(zlib.crc32(_bytes(row))) for row in plain]
        else:
            rows = plain.reshape(plain.shape[0], -1).double().mean(1).nan_to_num().tolist()
    finite = [value if abs(value) < 1e300 else None for value in (low, high)]
    return [kind, *finite, [round(value, 5) for value in rows]]


class RandomDraws:
    """Check whether producing the first batches of a process draws from the global random generators.

    The content of a sample then also depends on its worker and on the samples produced before.
    """

    def __init__(self, evidence: EvidenceFile, clock: SessionClock, fault: Fault) -> None:
        self._evidence = evidence
        self._clock = clock
        self._states = HookGuard(fault, "draws of samples")(random_states)
        self._left = 0
        self._file = ""

    def install(self, patches: Patches, fetch: Any) -> None:
        for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
            patches.around(getattr(fetch, name), "fetch", self._fetch)

    def _fetch(self, original: Callable[..., Any], fetcher: Any, index: Any) -> Any:
        if self._file != self._evidence.path:  # a fork checks again
            self._file, self._left = self._evidence.path, LOOKED_AT
        before = self._states() if self._left > 0 else None
        self._left -= 1
        data = original(fetcher, index)
        if before is not None and before != self._states():
            self._left = 0
            self._evidence.write(("facts", self._clock.now_us(), {"draws": True}))
        return data
