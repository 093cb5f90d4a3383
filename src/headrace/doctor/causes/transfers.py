"""Transfers of batches: between processes and to the GPU."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from headrace.doctor.causes.case import LOW, MEDIUM, WORTH, Case, Change, Proposal, tried, with_factor, would_not
from headrace.doctor.causes.remedy import Factor
from headrace.doctor.causes.workers import of_loaders
from headrace.doctor.edits.changes import WantedEdit
from headrace.doctor.measure.steps import COPY
from headrace.doctor.measure.waits import PICKLE, PIN, UNPICKLE
from headrace.doctor.quantities import percent, size, time
from headrace.doctor.simulate.work import FeedSetup

# -- from doctor/remedies/smaller_samples.py: Less between the processes: smaller dtypes, and no keys that nothing
# uses.


SMALLER_SAMPLES = "smaller-samples"
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
    why_not = _why_not_smaller(case)
    if why_not:
        yield would_not(SMALLER_SAMPLES, title, why_not)
        return
    leaves = _leaves(case)
    large = [
        one for one in leaves if one.smaller != one.dtype and one.bytes >= LARGE * sum(each.bytes for each in leaves)
    ]
    before = sum(one.bytes for one in leaves)
    after = before - sum(one.bytes - one.smaller_bytes for one in large)
    if not large:
        yield would_not(
            SMALLER_SAMPLES, title, f"Its {size(case.batch_bytes or 0)} have small dtypes already: {case.shapes[0]}."
        )
        return

    def change(setup: FeedSetup) -> FeedSetup:
        return replace(setup, sent_bytes=setup.sent_bytes * after / before)

    named = ", ".join(f"{one.text} as {one.smaller}" for one in large)
    yield tried(
        case,
        case.predict(change),
        code=SMALLER_SAMPLES,
        title=title,
        why=f"Moving a batch of {size(case.batch_bytes or before)} between processes takes {_moving(case)}; {named} is "
        f"{percent(after / before)} of the bytes.",
        confidence=MEDIUM,
        change=change,
        costs=["a cast on the device, or in the training thread"],
        hint=f"give {named} from the dataset, leave out keys that the step does not use, and cast after the copy",
    )


def _why_not_smaller(case: Case) -> str:
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


# -- from doctor/remedies/pinning.py: Pinned batches, and batches that are on the device before the step asks for
# them.


PIN_MEMORY, DEVICE_PREFETCH = "pin-memory", "device-prefetch"
LEFT = Factor(0.0, 0.5, 1.0, False, "How much of a copy runs beside the step was not measured: assumed is all to none.")


def pin_memory(case: Case) -> Iterator[Proposal]:
    title = "batches pinned by a thread"
    if case.facts.get("pin_memory") is True:
        yield would_not(PIN_MEMORY, title, "Already pinned (pin_memory=True).")
        return
    why_not = _why_not_pinned(case)
    if why_not:
        yield would_not(PIN_MEMORY, title, why_not)
        return
    yield tried(
        case,
        with_factor(case, LEFT, lambda left: pinned(case, left)),
        code=PIN_MEMORY,
        title=title,
        why=f"Copies to the GPU come from memory that is not pinned and take {_copies(case)}. {LEFT.basis}",
        confidence=LOW,
        change=pinned(case, LEFT.usual),
        costs=_pinned_bytes(case),
        wanted=WantedEdit({"pin_memory": "True"}),
        hint="DataLoader(…, pin_memory=True), and batch.to(device, non_blocking=True)",
        changes=of_loaders(case, pin_memory=True),
    )


def pinned(case: Case, left: float) -> Change:
    """Batches pinned by a thread, where so much is left of the copies' time in the step."""

    def change(setup: FeedSetup) -> FeedSetup:
        return replace(setup, pinned=True, off_step_us=max(setup.off_step_us, (1 - left) * _copy_us(case)))

    return change


def device_prefetch(case: Case) -> Iterator[Proposal]:
    title = "the next batch copied to the device on a side stream"
    why_not = _why_not_pinned(case)
    if why_not:
        yield would_not(DEVICE_PREFETCH, title, why_not)
        return

    def change(setup: FeedSetup) -> FeedSetup:
        return replace(setup, off_step_us=max(setup.off_step_us, _copy_us(case)))

    yield tried(
        case,
        case.predict(change),
        code=DEVICE_PREFETCH,
        title=title,
        why=f"Copies to the GPU take {_copies(case)}, and the step stands still meanwhile.",
        confidence=MEDIUM,
        change=change,
        costs=[*_pinned_bytes(case), *_device_bytes(case)],
        wanted=WantedEdit(prefetcher="cuda"),
        hint='for batch in headrace.DevicePrefetcher(loader, "cuda"): …; with normalize=headrace.IMAGENET images '
        "travel as bytes and become floats on the device",
        changes={"device_prefetch": True},
    )


def _why_not_pinned(case: Case) -> str:
    if not case.has_gpu:
        return "No GPU was used: nothing is copied to one."
    if _share(case) < WORTH:
        return f"Copies to the GPU take {_copies(case)}: that is all that it could gain."
    return ""


def _copy_us(case: Case) -> float:
    """Of one batch, in the training thread."""
    batches = 1.0 if case.recorded is None else case.recorded.batches_a_step
    return case.part_us(COPY) / max(batches, 1.0)


def _share(case: Case) -> float:
    return case.part_us(COPY) / case.step_us if case.step_us else 0.0


def _copies(case: Case) -> str:
    return f"{time(case.part_us(COPY))} ({percent(_share(case))}) of a step"


def _pinned_bytes(case: Case) -> list[str]:
    each = case.batch_bytes
    queued = 1 if case.recorded is None else case.workers * case.recorded.setup.prefetch
    return [] if each is None else [f"{size(each * max(queued, 1))} of pinned memory at most"]


def _device_bytes(case: Case) -> list[str]:
    return [] if case.batch_bytes is None else [f"{size(2 * case.batch_bytes)} of GPU memory for two batches ahead"]
