"""Batches that are larger than they need to be between processes."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

from headrace.doctor.causes.case import MEDIUM, WORTH, Case, share_of
from headrace.doctor.causes.cause import Cause, Proposal, RemedyKind
from headrace.doctor.causes.remedy import FEW_LINES
from headrace.doctor.measure import PICKLE, PIN, UNPICKLE, tensors_of
from headrace.doctor.quantities import counted, duration, percent, size

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
    found = [Leaf(*one) for one in tensors_of(case.shapes[0])] if case.shapes else []
    pictures = [one for one in found if len(one.sizes) == 3 and one.sizes[0] == 3 and min(one.sizes[1:]) >= SIDE]
    return [replace(one, is_listed=len(pictures) > 1 and one in pictures) for one in found]


def smaller_samples(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose smaller dtypes for transfers between processes, and no unused keys."""
    leaves = leaves_of(case)
    if not case.workers or case.batch_bytes is None or not leaves:
        return None
    # Time that a step waits for the transfer, plus a worker's time on it for each batch of a step.
    sending_us = share_of(case.stages("serialise")) * case.making.batch_us * case.batches_a_step / case.workers
    moving_us = case.split_us(PICKLE, UNPICKLE, PIN) + sending_us
    moving = f"{duration(moving_us)} a step" + (f" ({percent(case.step_share(moving_us))})" if case.step_us else "")
    whole = size(case.batch_bytes)
    if case.batch_bytes < SMALL_BYTES or case.step_share(moving_us) < WORTH:
        return None
    before = sum(one.bytes for one in leaves)
    of_dtype = {one.dtype: sum(each.bytes for each in leaves if each.dtype == one.dtype) for one in leaves}
    large = [one for one in leaves if one.smaller != one and of_dtype[one.dtype] >= LARGE * before]
    if not large:
        return None
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


CAUSE = Cause(
    remedies=[
        RemedyKind(
            "smaller-samples",
            "smaller batches between the processes",
            "Send less between processes: smaller dtypes, no unused keys",
            FEW_LINES,
            smaller_samples,
            costs=("a cast on the device, or in the training thread",),
        )
    ]
)
