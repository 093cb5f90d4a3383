"""Contents of batches: their transfers between processes and to the GPU, their padding and tokenisation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from headrace.doctor.causes.case import MEDIUM, WORTH, Case, Change, sample_us, scaled, share_of, step_left
from headrace.doctor.causes.proposals import Proposal, RemedyKind
from headrace.doctor.causes.remedy import Factor, untimed
from headrace.doctor.causes.training_kinds import TRAINING
from headrace.doctor.edits import WantedEdit
from headrace.doctor.measure import (
    BACKWARD,
    COPY,
    FORWARD,
    PICKLE,
    PIN,
    UNPICKLE,
    Finding,
    TrainerView,
    pass_of,
    tensors_of,
    uses_gpu,
)
from headrace.doctor.quantities import counted, duration, number, percent, size
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import LoaderFacts

COPY_LEFT = Factor(
    0.0,
    0.5,
    1.0,
    False,
    "How much of a copy runs alongside the step was not measured: the prediction assumes all to none.",
)
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

WORTH_PADDING = 0.1
"""Reporting threshold: share of the tokens that padding to each batch's longest sequence would save."""
MUCH_PADDING = 0.3
"""Reporting threshold: share of padding in batches that are already padded only to their longest sequence."""
TOKENISED = (0.2, 0.9)
TO_LONGEST = (
    "Look at where sequences are padded: in the collate function, to the longest of the batch (padding=True, "
    'DataCollatorWithPadding, pad_sequence), in place of padding="max_length" for each.'
)
BY_LENGTH = (
    "Put sequences of about one length into a batch (group_by_length=True, a sampler that "
    "buckets by length), or packed one after another."
)


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
    if case.facts.get("pin_memory") is True or not _copies_much(case):
        return None
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
    if not _copies_much(case):
        return None
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


def _copies_much(case: Case) -> bool:
    return case.has_gpu and case.step_share(case.part_us(COPY)) >= WORTH


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


@dataclass(frozen=True)
class Tokens:
    """Tokens of the sequence batches that steps waited for."""

    batches: int
    padded: float
    """Share of the tokens that is padding."""
    spare: float
    """Share of the tokens that padding to each batch's longest sequence would save."""
    said: str
    """Sentence on the share of padding, and on the mean padded and longest lengths."""


def tokens_of(view: TrainerView) -> Tokens | None:
    """Return totals over the batches of sequences; None if no step waited for such a batch."""
    padding, passes, fed = view.trainer.padding, pass_of(view.trainer), view.training.fed
    rows = [
        row for row, pass_ in enumerate(padding.pass_) if (one := passes.get(pass_)) is not None and one.loader in fed
    ]
    tokens = sum(padding.rows[row] * padding.width[row] for row in rows)
    if not tokens:
        return None
    samples = sum(padding.rows[row] for row in rows)
    needed = sum(padding.rows[row] * padding.longest[row] for row in rows)
    padded = 1 - sum(padding.filled[row] for row in rows) / tokens
    said = (
        f"{percent(padded)} of the tokens that are trained on are padding: sequences are "
        f"{number(round(tokens / samples))} tokens long, where the longest of a batch has "
        f"{number(round(needed / samples))} on average"
    )
    return Tokens(len(rows), padded, 1 - needed / tokens, said)


def padding_findings(view: TrainerView) -> Iterator[Finding]:
    """Find padding. The weight is the saving of the model's own time with shorter batches."""
    tokens = tokens_of(view)
    if tokens is None:
        return
    model = view.share(FORWARD) + view.share(BACKWARD)
    seen = f"seen in {counted(tokens.batches, 'batch')}; forward and backward take {percent(model)} of each step"
    if tokens.spare >= WORTH_PADDING:
        spare = f"{percent(tokens.spare)} could be left out; {seen}"
        weight = tokens.spare * model
        yield TRAINING["padding"].found(weight, text=f"{tokens.said}.", evidence=spare, advice=TO_LONGEST)
    elif tokens.padded >= MUCH_PADDING:
        text = (
            f"{percent(tokens.padded)} of the tokens that are trained on are padding, though each batch is only as "
            "long as its longest sequence."
        )
        yield TRAINING["padding"].found(text=text, evidence=seen, advice=BY_LENGTH)


def pad_to_batch(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose to pad sequences only to the longest of their batch."""
    tokens = tokens_of(case.view)
    if tokens is None or tokens.spare < WORTH:
        return None
    spare = tokens.spare
    model = case.view.share(FORWARD) + case.view.share(BACKWARD)
    return kind.leaving(
        case,
        step_left(case, model, spare, "forward and backward go with the tokens"),
        # A batch's bytes shrink with its tokens.
        lambda left: lambda setup: replace(setup, step=setup.step * left, sent_bytes=setup.sent_bytes * (1 - spare)),
        why=f"{tokens.said}, and forward and backward take {percent(model)} of a step.",
    )


def batch_tokeniser(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose to tokenise a batch at a time."""
    tokenising = case.stages("tokenise")
    share, calls = share_of(tokenising), sum(one.calls for one in tokenising)
    if share < WORTH or calls < 2:  # one call a batch
        return None
    return kind.leaving(
        case,
        untimed(*TOKENISED),
        scaled(tokenising),
        why=f"The tokeniser is called {number(calls)} times a batch, {duration(sample_us(tokenising))} a sample, "
        f"{percent(share)} of making a batch.",
    )
