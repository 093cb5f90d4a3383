"""Digests of batches: of those that a process receives or makes first, and of the keys of all.

Runs are compared by them. Workers and ranks that draw the same numbers, or make the same samples, show in them, and
evaluations that use files of the training.
"""

from __future__ import annotations

import hashlib
import os
import sys
import zlib
from collections.abc import Iterable
from functools import partial
from itertools import islice
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable

from ..patches import Fault, HookGuard, Patches
from ..training.state import ATTRIBUTE
from .leaves import MOST_LEAVES, as_array, leaves_of

if TYPE_CHECKING:
    from ..evidence_file import EvidenceFile
    from ..training.state import TrainingState

MOST_DIGEST_BYTES = 256 << 20
"""Digested bytes over all batches: at 1 GB/s, a quarter of a second of the warm-up."""
MOST_SAMPLES = 400_000
"""Maximum number of samples whose keys are recorded."""
MOST_BATCHES = 20_000
"""Maximum number of batches whose keys are recorded."""
SAVES = {"torch.serialization": ("save", "f"), "safetensors": ("serialize_file", "filename")}
"""Functions that write a checkpoint, by module, with the name of their second argument: the file."""
_KEYS = "_headrace_keys"
"""Attribute of a DataLoader iterator: digests of the keys that it drew, batch by batch."""
_FIRST_ROWS = 8
_ROW_VALUES, _ROW_DIGITS = 2048, 10
_MOST_BYTES = 32 << 20
"""Maximum size of the digested rows of a leaf."""


def digest_of(*parts: bytes) -> bytes:
    made = hashlib.blake2b(digest_size=8)
    for part in parts:
        made.update(part)
    return made.digest()


def digest_of_text(text: str) -> bytes:
    return digest_of(text.encode(errors="replace"))


def digest_of_keys(keys: Any) -> str | None:
    """Return the digest of a batch's keys; None if the dataset is iterable or its keys are None."""
    if not isinstance(keys, (list, tuple)) or all(key is None for key in keys):
        return None
    return digest_of_text(repr(keys)).hex()


class ReceivedDigests:
    """Digests of the batches that a process receives, in order.

    Of a run to be compared with another, these are the contents of its first batches, during warm-up: measured steps
    follow later. Of a run to be resumed, these are the keys of each batch, and the number of batches at each
    checkpoint. The hooks are installed below all others, so their cost counts as time waiting for a batch.
    """

    def __init__(self, training: TrainingState, evidence: EvidenceFile, fault: Fault) -> None:
        self._training, self._evidence, self._clock = training, evidence, training.clock
        self._left, self._free = training.settings.digests, MOST_DIGEST_BYTES
        self._has_order = training.settings.orders
        self._most_keys = MOST_BATCHES if self._has_order else self._left + 1
        self._taken, self._saved = 0, (0, False)
        self._samples_left = MOST_SAMPLES
        guard = HookGuard(fault, "digests of samples")
        self._keep, self._deliver = guard(self._keep_keys), guard(self._write_delivered)
        self._write, self._save = guard(self._write_content), guard(self._note_save)

    def hooks(self, patches: Patches) -> list[tuple[str, Callable[[ModuleType], object]]]:
        """Return the modules to hook, and the function that installs each hook."""
        saves = SAVES.items() if self._has_order else ()
        return [
            ("torch.utils.data.dataloader", partial(self._install, patches)),
            *((module, partial(self._watch, patches, *call)) for module, call in saves),
        ]

    def _install(self, patches: Patches, dataloader: ModuleType) -> None:
        patches.around(dataloader._BaseDataLoaderIter, "__next__", self._next)
        patches.around(dataloader._BaseDataLoaderIter, "_next_index", self._next_index)

    def _watch(self, patches: Patches, name: str, argument: str, module: ModuleType) -> None:
        def save(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            self._save(args[1] if len(args) > 1 else kwargs.get(argument))
            return result

        patches.around(module, name, save)

    def _next_index(self, original: Callable[[Any], Any], iterator: Any) -> Any:
        keys = original(iterator)
        if self._left > 0 or self._is_ordered():
            self._keep(iterator, keys)
        return keys

    def _next(self, original: Callable[[Any], Any], iterator: Any) -> Any:
        batch = original(iterator)
        if self._is_wanted() or self._is_ordered():
            self._deliver(iterator, batch)
        return batch

    def received(self, pass_: int, batch: Any) -> None:
        """Write the digest of a batch from a loader other than torch's."""
        if self._is_wanted():
            self._write(pass_, batch, None)

    def _is_wanted(self) -> bool:
        warmup = self._training.limit.warmup
        return self._left > 0 and (warmup is None or self._training.steps.number < warmup)

    def _is_ordered(self) -> bool:
        return self._has_order and self._taken < MOST_BATCHES

    def _keep_keys(self, iterator: Any, keys: Any) -> None:
        drawn = vars(iterator).setdefault(_KEYS, [])
        if len(drawn) < self._most_keys:
            samples = self._hashes(map(repr, keys)) if self._has_order and isinstance(keys, (list, tuple)) else []
            drawn.append((digest_of_keys(keys), samples))

    def _hashes(self, texts: Iterable[str]) -> list[int]:
        found = [zlib.crc32(text.encode()) for text in texts] if self._samples_left > 0 else []
        self._samples_left -= len(found)
        return found

    def _write_delivered(self, iterator: Any, batch: Any) -> None:
        """Write a batch. One without a pass is of a loader inside a worker, or that a dataset reads."""
        pass_, drawn = getattr(iterator, ATTRIBUTE, None), vars(iterator).get(_KEYS)
        if pass_ is None:
            return
        keys, samples = drawn.pop(0) if drawn else (None, [])
        if self._is_wanted():
            self._write_content(pass_.number, batch, keys)
        if self._is_ordered():
            if keys is None:
                rows = rows_of_samples(batch)
                keys, samples = digest_of_text(repr(rows)).hex(), self._hashes(rows)
            self._taken += 1
            self._evidence.write(("drawn", pass_.number, self._training.steps.number, keys, samples))

    def _note_save(self, file: Any) -> None:
        """Note a checkpoint. Lightning writes into memory first; so may code that saves none."""
        is_file = isinstance(file, (str, os.PathLike)) or hasattr(file, "name")
        if (self._taken, is_file) != self._saved:
            self._saved = self._taken, is_file
            self._evidence.write(("saved", self._clock.now_us(), self._taken, int(is_file)))

    def _write_content(self, pass_: int, batch: Any, keys: str | None) -> None:
        tensor_type = sys.modules["torch"].Tensor
        leaves = islice((leaf for _, leaf in leaves_of(batch)), MOST_LEAVES)
        tensors = [leaf for leaf in leaves if isinstance(leaf, tensor_type)]
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        if size > self._free or any(tensor.device.type != "cpu" for tensor in tensors):
            self._left = 0
            return
        self._left -= 1
        self._free -= size
        kinds = (f"{tensor.dtype}{tuple(tensor.shape)}".encode() for tensor in tensors)
        digest = digest_of(*(part for kind, tensor in zip(kinds, tensors) for part in (kind, _bytes(tensor))))
        self._evidence.write(("digest", pass_, digest.hex(), keys, [_kind_of(tensor) for tensor in tensors]))


def _bytes(tensor: Any) -> Any:
    return memoryview(tensor.detach().contiguous().view(-1).view(sys.modules["torch"].uint8).numpy())


def _kind_of(tensor: Any) -> str:
    """Return dtype and shape without the batch dimension."""
    return f"{str(tensor.dtype).rpartition('.')[2]}[{','.join(map(str, tensor.shape[1:]))}]"


def row_digests(batch: Any, devices: tuple[str, ...] = ("cpu",)) -> list[tuple[str, str, int]]:
    """Return path, digest and number of distinct rows of each leaf; no digest if its values cannot be read."""
    found = []
    for path, value in islice(leaves_of(batch), MOST_LEAVES):
        try:
            rows = _rows(value, devices)
        except Exception:  # a user class may do anything
            rows = None
        digest = "" if rows is None else digest_of(*rows).hex()
        found.append((".".join(map(str, path)), digest, len(set(rows or ()))))
    return found


def batch_rows(batch: Any) -> list[tuple[str, list[str]]]:
    """Return path and digests of the rows of each leaf of a batch: of up to a few thousand values of each row."""
    found: dict[str, list[str]] = {}
    for path, value in islice(leaves_of(batch), 4 * MOST_LEAVES):
        if isinstance(value, (str, bytes, int, float)):
            found.setdefault(".".join(map(str, path[:-1])), []).append(digest_of_text(repr(value)).hex()[:_ROW_DIGITS])
            continue
        try:
            array = as_array(value)
        except Exception:  # a user class may do anything
            continue
        for row in array if array is not None and array.ndim else ():
            some = row.reshape(-1)[:: max(1, row.size // _ROW_VALUES)]
            digest = digest_of(some.tobytes()).hex()[:_ROW_DIGITS]
            found.setdefault(".".join(map(str, path)), []).append(digest)
    return list(found.items())


def rows_of_samples(batch: Any) -> list[str]:
    """Return a digest of each sample of a batch: of its texts, if they differ, since these are never augmented."""
    leaves = batch_rows(batch)
    count = max((len(rows) for _, rows in leaves), default=0)
    whole = [rows for _, rows in leaves if len(rows) == count]
    names = _texts(batch)
    texts = [rows for path, rows in leaves if path in names and len(set(rows)) == count]
    return ["".join(parts) for parts in zip(*(texts or whole))]


def _texts(batch: Any) -> set[str]:
    leaves = islice(leaves_of(batch), 4 * MOST_LEAVES)
    return {".".join(map(str, path[:-1])) for path, value in leaves if isinstance(value, str)}


def _rows(value: Any, devices: tuple[str, ...]) -> list[bytes] | None:
    """Return digests of a leaf's first rows; None for other objects, and for those on another device."""
    if value is None or isinstance(value, (str, bytes, int, float)):
        return [digest_of_text(repr(value))]
    device = getattr(value, "device", None)
    if getattr(device, "type", "cpu") not in devices:
        return None
    array = as_array(value[:_FIRST_ROWS] if getattr(value, "ndim", 0) else value)
    if array is None:
        return None
    first = array[:_FIRST_ROWS] if array.ndim else array[None]
    kind = f"{first.dtype}{first.shape[1:]}".encode()
    return None if first.nbytes > _MOST_BYTES else [digest_of(kind, row.tobytes()) for row in first]
