"""Less between the processes: smaller dtypes, and no keys that nothing uses."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from headrace.doctor.causes.case import WORTH, Case
from headrace.doctor.measure.waits import PICKLE, PIN, UNPICKLE
from headrace.doctor.predict.setup import Setup
from headrace.doctor.quantities import percent, size, time
from headrace.doctor.remedies.proposal import MEDIUM, Proposal, tried, would_not

CODE = "smaller-samples"
LEAF = re.compile(r"(\w+)\[([\d,]*)\]")
"""Of a shape's text: dtype and sizes."""
BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}
SMALLER = {"float64": "float32", "int64": "int32"}
"""What holds the same values as training uses them."""
IMAGE_DTYPE = "uint8"
COLOURS = (1, 3, 4)
SMALL_BYTES = 1_000_000
"""Of a batch: what moving a smaller one takes does not come of its size."""
LARGE = 0.05
"""Share of a batch's bytes from which a tensor is worth changing."""


@dataclass(frozen=True)
class Leaf:
    dtype: str
    sizes: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return BYTES.get(self.dtype, 1) * math.prod(self.sizes)

    @property
    def smaller(self) -> str:
        """An image of floats was made from bytes; floats are 32 bits in training, and indices 32 at most."""
        is_image = len(self.sizes) == 4 and (self.sizes[1] in COLOURS or self.sizes[3] in COLOURS)
        if is_image and self.dtype in ("float64", "float32"):
            return IMAGE_DTYPE
        return SMALLER.get(self.dtype, self.dtype)

    @property
    def smaller_bytes(self) -> int:
        return BYTES.get(self.smaller, 1) * math.prod(self.sizes)

    @property
    def text(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.sizes))}]"


def smaller_samples(case: Case) -> Iterator[Proposal]:
    title = "smaller batches between the processes"
    why_not = _why_not(case)
    if why_not:
        yield would_not(CODE, title, why_not)
        return
    leaves = _leaves(case)
    large = [
        one for one in leaves if one.smaller != one.dtype and one.bytes >= LARGE * sum(each.bytes for each in leaves)
    ]
    before = sum(one.bytes for one in leaves)
    after = before - sum(one.bytes - one.smaller_bytes for one in large)
    if not large:
        yield would_not(CODE, title, f"Its {size(case.batch_bytes or 0)} have small dtypes already: {case.shapes[0]}.")
        return

    def change(setup: Setup) -> Setup:
        return replace(setup, sent_bytes=setup.sent_bytes * after / before)

    named = ", ".join(f"{one.text} as {one.smaller}" for one in large)
    yield tried(
        case,
        case.predict(change),
        code=CODE,
        title=title,
        why=f"Moving a batch of {size(case.batch_bytes or before)} between processes takes {_moving(case)}; {named} is "
        f"{percent(after / before)} of the bytes.",
        confidence=MEDIUM,
        change=change,
        costs=["a cast on the device, or in the training thread"],
        hint=f"give {named} from the dataset, leave out keys that the step does not use, and cast after the copy",
    )


def _why_not(case: Case) -> str:
    if not case.workers:
        return "There are no workers (num_workers=0), so nothing goes between processes."
    if case.batch_bytes is None or not _leaves(case):
        return "No tensor was seen in the batches."
    if case.batch_bytes < SMALL_BYTES:
        return f"A batch has {size(case.batch_bytes)}: what moving it takes does not come of its size."
    share = _moving_us(case) / case.step_us if case.step_us else 0.0
    if share < WORTH:
        return f"Moving a batch of {size(case.batch_bytes)} between processes takes {_moving(case)}."
    return ""


def _moving_us(case: Case) -> float:
    """What a step waits for it, and what a worker spends on it for each batch of a step."""
    batches = 1.0 if case.recorded is None else case.recorded.batches_a_step
    made = sum(one.share for one in case.stages("serialise")) * case.making.batch_us * batches
    return case.split_us(PICKLE, UNPICKLE, PIN) + made / max(case.workers, 1)


def _moving(case: Case) -> str:
    spent = _moving_us(case)
    return f"{time(spent)} a step ({percent(spent / case.step_us)})" if case.step_us else time(spent)


def _leaves(case: Case) -> list[Leaf]:
    """Of the most frequent shape."""
    text = case.shapes[0] if case.shapes else ""
    return [Leaf(dtype, tuple(int(one) for one in sizes.split(",") if one)) for dtype, sizes in LEAF.findall(text)]
