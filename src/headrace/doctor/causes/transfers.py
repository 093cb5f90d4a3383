"""Batch transfers: between processes, into pinned memory, and to the GPU."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..edits import WantedEdit
from ..measure import COPY, PICKLE, PIN, UNPICKLE, Finding, TrainerView, uses_gpu
from ..quantities import counted, duration, percent, size
from ..session.model import Session
from ..session.trainers import LoaderFacts
from .case import MEDIUM, WORTH, Case, Change, share_of
from .proposals import Proposal, RemedyKind
from .remedy import Factor
from .training_kinds import TRAINING

COPY_LEFT = Factor(
    0.0,
    0.5,
    1.0,
    False,
    "How much of a copy runs alongside the step was not measured: the prediction assumes all to none.",
)
LEAF = re.compile(r"(\w+)\[([\d,]*)\]")
"""Pattern of a tensor's dtype and sizes in the text of a shape."""
BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}
SMALLER = {"float64": "float32", "int64": "int32"}
"""Smaller dtypes that hold the same values for training."""
IMAGE_DTYPE = "uint8"
SIDE = 32
"""Minimum height and width of a tensor that may be an image."""
NAMED = 4
"""Maximum number of tensors to name individually."""
COLOURS = (1, 3, 4)
SMALL_BYTES = 1_000_000
"""Bytes of a batch below which its size does not make a transfer slow."""
LARGE = 0.05
"""Minimum share of a batch's bytes for a tensor that is worth changing."""


def unpinned_copies(session: Session, view: TrainerView, loader: LoaderFacts) -> Iterator[Finding]:
    """Find copies to the GPU from unpinned memory."""
    copy = view.share(COPY)
    if loader.facts.get("pin_memory") is not False or copy < WORTH or not uses_gpu(session, view.trainer):
        return
    file, line = loader.facts.get("file"), loader.facts.get("line")
    place = f"{file}:{line}" if file is not None else f"loader {loader.number}"
    yield TRAINING["pin-memory"].found(copy, copy=copy, place=place)


def pin_memory(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose to pin batches in a thread of the trainer."""
    if not case.has_gpu:
        return None
    pins_already = case.facts.get("pin_memory") is True
    why_not = "Already pinned (pin_memory=True)." if pins_already else _why_no_copies(case)
    if why_not:
        return kind.would_not(why_not)
    return kind.leaving(
        case,
        COPY_LEFT,
        lambda left: pinned(case, left),
        why=f"Copies to the GPU come from memory that is not pinned and take {_copies(case)}.",
        costs=_pinned_bytes(case),
        arguments={"pin_memory": True},
    )


def pinned(case: Case, left: float) -> Change:
    """Return the change to batches pinned by a thread, with the given share of the copy time left in the step."""
    off_us = (1 - left) * _copy_us(case)
    return lambda setup: replace(setup, pinned=True, off_step_us=max(setup.off_step_us, off_us))


def device_prefetch(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose to copy batches to the device before the step requests them."""
    if not case.has_gpu:
        return None
    why_not = _why_no_copies(case)
    if why_not:
        return kind.would_not(why_not)
    ahead = [] if case.batch_bytes is None else [f"{size(2 * case.batch_bytes)} of GPU memory for two batches ahead"]
    return kind.tried(
        case,
        lambda setup: replace(setup, off_step_us=max(setup.off_step_us, _copy_us(case))),
        why=f"Copies to the GPU take {_copies(case)}, and the step stands still meanwhile.",
        confidence=MEDIUM,
        costs=[*_pinned_bytes(case), *ahead],
        wanted=WantedEdit(prefetcher="cuda"),
        injects=True,
    )


def _why_no_copies(case: Case) -> str:
    if case.step_share(case.part_us(COPY)) < WORTH:
        return f"Copies to the GPU take {_copies(case)}: that is all that it could gain."
    return ""


def _copy_us(case: Case) -> float:
    """Return the training thread's time to copy one batch."""
    return case.part_us(COPY) / max(case.batches_a_step, 1.0)


def _copies(case: Case) -> str:
    us = case.part_us(COPY)
    return f"{duration(us)} ({percent(case.step_share(us))}) of a step"


def _pinned_bytes(case: Case) -> list[str]:
    queued = 1 if case.recorded is None else case.workers * case.recorded.setup.prefetch
    return [] if case.batch_bytes is None else [f"{size(case.batch_bytes * max(queued, 1))} of pinned memory at most"]


@dataclass(frozen=True)
class Leaf:
    """Tensor of a batch."""

    dtype: str
    sizes: tuple[int, ...]
    is_listed: bool = False
    """True if the tensor is one image in a list of images, the input format of detectors."""

    @property
    def bytes(self) -> int:
        return BYTES.get(self.dtype, 1) * math.prod(self.sizes)

    @property
    def smaller(self) -> Leaf:
        """Same tensor in the smallest dtype for training.

        A floating-point image comes from bytes, and indices need at most 32 bits.
        """
        is_image = len(self.sizes) == 4 and (self.sizes[1] in COLOURS or self.sizes[3] in COLOURS)
        if (is_image or self.is_listed) and self.dtype in ("float64", "float32"):
            return replace(self, dtype=IMAGE_DTYPE)
        return replace(self, dtype=SMALLER.get(self.dtype, self.dtype))

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.sizes))}]"


def leaves_of(case: Case) -> list[Leaf]:
    """Return the tensors of the most frequent shape."""
    text = case.shapes[0] if case.shapes else ""
    found = [Leaf(dtype, tuple(int(one) for one in sizes.split(",") if one)) for dtype, sizes in LEAF.findall(text)]
    pictures = [one for one in found if len(one.sizes) == 3 and one.sizes[0] == 3 and min(one.sizes[1:]) >= SIDE]
    return [replace(one, is_listed=len(pictures) > 1 and one in pictures) for one in found]


def smaller_samples(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose smaller dtypes for transfers between processes, and no unused keys."""
    leaves = leaves_of(case)
    if not case.workers:
        return None
    if case.batch_bytes is None or not leaves:
        return kind.would_not("No tensor was seen in the batches.")
    # Time that a step waits for the transfer, plus a worker's time on it for each batch of a step.
    sending_us = share_of(case.stages("serialise")) * case.making.batch_us * case.batches_a_step / case.workers
    moving_us = case.split_us(PICKLE, UNPICKLE, PIN) + sending_us
    moving = f"{duration(moving_us)} a step" + (f" ({percent(case.step_share(moving_us))})" if case.step_us else "")
    whole = size(case.batch_bytes)
    if case.batch_bytes < SMALL_BYTES:
        return kind.would_not(f"A batch has {whole}: its size is not what makes moving it slow.")
    if case.step_share(moving_us) < WORTH:
        return kind.would_not(f"Moving a batch of {whole} between processes takes {moving}.")
    before = sum(one.bytes for one in leaves)
    of_dtype = {one.dtype: sum(each.bytes for each in leaves if each.dtype == one.dtype) for one in leaves}
    large = [one for one in leaves if one.smaller != one and of_dtype[one.dtype] >= LARGE * before]
    if not large:
        return kind.would_not(f"Its {whole} have small dtypes already: {case.shapes[0]}.")
    left = 1 - sum(one.bytes - one.smaller.bytes for one in large) / before
    named = ", ".join(dict.fromkeys(f"{one} as {one.smaller.dtype}" for one in large))
    if len(large) > NAMED:
        dtypes = Counter((one.dtype, one.smaller.dtype) for one in large)
        named = ", ".join(f"{counted(count, f'{old} tensor')} as {new}" for (old, new), count in dtypes.items())
    return kind.tried(
        case,
        lambda setup: replace(setup, sent_bytes=setup.sent_bytes * left),
        why=f"Moving a batch of {whole} between processes takes {moving}; {named} is {percent(left)} of the bytes.",
        confidence=MEDIUM,
        hint=f"give {named} from the dataset, leave out keys that the step does not use, and cast after the copy",
    )
