"""Turns `pack=` into a plan, by how long the dataset's texts are in tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headrace.data import Dataset
from headrace.data.mapped import mapped
from headrace.errors import UsageError
from headrace.fields.tokens import ResolvedText
from headrace.grouping.order import Order
from headrace.packing import Pack
from headrace.plan.batching import Buckets, Budget
from headrace.plan.length_order import LengthOrder
from headrace.plan.order import check_order
from headrace.plan.packed_plan import PackPlan
from headrace.views.views import Program

Lengths = NDArray[np.int32]

MOST_TOKENS_A_BATCH = (1 << 31) - 1
"""Of one rank: kernels take boundaries as int32."""


def check_pack(pack: Pack, *, batch_size: int | Budget, buckets: Buckets | None, program: Program) -> int:
    """The rows of a batch. Raises UsageError for what is no Pack, or does not go with one."""
    if not isinstance(pack, Pack):
        raise UsageError(f"pack: expected hr.Pack(…) or None, got {pack!r}")
    if buckets is not None:
        raise UsageError(f"pack: expected no buckets beside it, got {buckets!r}: rows are full already; leave one out")
    if isinstance(batch_size, Budget):
        raise UsageError(
            f"batch_size: expected rows of {pack.length} tokens beside pack=, got {batch_size!r}; pass how many"
        )
    if program.drawn_per_step:
        raise UsageError("pack: expected no RandomScale beside it: it draws a shape a step; use a view of fixed size")
    return batch_size


def text_packed(pack: Pack, texts: Sequence[ResolvedText]) -> ResolvedText:
    """The text field that is packed. Raises UsageError where there is none, several, or one that does not fit."""
    names = [text.name for text in texts]
    if not names:
        raise UsageError("pack: expected a field of text, such as {'text': hr.Text(…)}, got none")
    if pack.field is None and len(names) > 1:
        raise UsageError(f"pack: expected to know which of {names} is packed; pass hr.Pack({pack.length}, field=…)")
    if pack.field is not None and pack.field not in names:
        raise UsageError(f"pack: expected field to be one of the text fields {names}, got {pack.field!r}")
    text = texts[0 if pack.field is None else names.index(pack.field)]
    if text.field.max_length > pack.length:
        raise UsageError(
            f"field {text.name!r}: expected max_length of at most the {pack.length} tokens of a row, got "
            f"{text.field.max_length}; lower it, or raise Pack's length"
        )
    if text.field.pad != "batch":
        raise UsageError(
            f"field {text.name!r}: a packed text is filled up with its row, got pad={text.field.pad!r}; leave it out"
        )
    return text


def packed_plan(dataset: Dataset, order: Order, pack: Pack, text: ResolvedText, *, batch_size: int) -> PackPlan:
    """Rows of the dataset's texts, whose lengths are counted unless they are kept."""
    check_order(length=len(dataset), batch_size=batch_size, **vars(order))
    if batch_size * pack.length > MOST_TOKENS_A_BATCH:
        raise UsageError(
            f"batch_size: expected at most {MOST_TOKENS_A_BATCH // pack.length} rows of {pack.length} tokens a rank, "
            f"got {batch_size}"
        )
    lengths = known_lengths(dataset, text.lengths(None), text.name)
    by_length = LengthOrder.of(lengths, pack.length, mapped)
    return PackPlan(order=by_length, row=pack.length, batch_size=batch_size, **vars(order))


def known_lengths(dataset: Dataset, lengths: Lengths, name: str) -> Lengths:
    """By position in the dataset, of lengths by base id. A sample whose text cannot be used, -1, counts as long as the
    middle of the others: it is replaced by one of the length that it counts as, and of that one there are."""
    found = lengths if dataset.base_ids is None else lengths[dataset.base_ids]
    unknown = found < 0
    if not unknown.any():
        return found
    known = found[~unknown]
    if len(known) == 0:
        raise UsageError(
            f"field {name!r}: expected texts to pack, got none that can be used among {len(dataset)} samples; look at "
            "one with ds[0]"
        )
    filled = mapped(found.shape, np.int32)
    np.copyto(filled, found)
    filled[unknown] = np.partition(known, len(known) // 2)[len(known) // 2]
    return filled
