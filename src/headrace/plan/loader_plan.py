"""Plan of a Loader, made of its arguments and of what the dataset says of its samples."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headrace._core import Limits
from headrace.data import Dataset
from headrace.data.sample_arrays import mapped_zeros, position_blocks
from headrace.data.sizes import image_sizes
from headrace.errors import UsageError
from headrace.fields.tokens import ResolvedText, text_measured
from headrace.plan import bucket_keys
from headrace.plan.batch_cutting import BudgetCapacity, Capacity, FixedCapacity
from headrace.plan.batching import Buckets, Budget, Pack
from headrace.plan.best_fit import LengthOrder
from headrace.plan.bucket_codes import Coding, by_categories, by_numbers, length_bounds, members_of, shape_bounds
from headrace.plan.bucket_members import Membership, OneBucket
from headrace.plan.order import EpochPlan, Order, UniformPlan, check_order
from headrace.plan.packed_plan import PackedPlan
from headrace.plan.shaped_plan import ShapedPlan
from headrace.plan.step_views import ImageSizes, StepViews
from headrace.views.views import Program

# -- from grouping/packing.py: Turns `pack=` into a plan, by how long the dataset's texts are in tokens.


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


def packed_plan(dataset: Dataset, order: Order, pack: Pack, text: ResolvedText, *, batch_size: int) -> PackedPlan:
    """Rows of the dataset's texts, whose lengths are counted unless they are kept."""
    check_order(length=len(dataset), batch_size=batch_size, **vars(order))
    if batch_size * pack.length > MOST_TOKENS_A_BATCH:
        raise UsageError(
            f"batch_size: expected at most {MOST_TOKENS_A_BATCH // pack.length} rows of {pack.length} tokens a rank, "
            f"got {batch_size}"
        )
    lengths = known_lengths(dataset, text.lengths(None), text.name)
    by_length = LengthOrder.of(lengths, pack.length, mapped_zeros)
    return PackedPlan(order=by_length, row=pack.length, batch_size=batch_size, **vars(order))


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
    filled = mapped_zeros(found.shape, np.int32)
    np.copyto(filled, found)
    filled[unknown] = np.partition(known, len(known) // 2)[len(known) // 2]
    return filled


# -- from grouping/planning.py: The plan of a Loader: a plain one, or one of shapes.


BY_SIZE = ("aspect", "orientation", "size")


@dataclass(frozen=True, kw_only=True)
class ViewedImages:
    """The column of images that views are drawn from."""

    column: str
    exif: bool
    threads: int | None
    limits: Limits | None


def plan_of(
    dataset: Dataset,
    order: Order,
    *,
    batch_size: int | Budget,
    buckets: Buckets | None,
    program: Program,
    images: ViewedImages | None,
    texts: Sequence[ResolvedText] = (),
    pack: Pack | None = None,
) -> EpochPlan:
    """A plain plan where nothing else is asked for. Sizes of images are read where they matter, unless they are kept.

    Raises UsageError for what does not go together, and for a budget smaller than what it must hold.
    """
    if buckets is not None and not isinstance(buckets, Buckets):
        raise UsageError(f"buckets: expected hr.Buckets(…) or None, got {buckets!r}")
    if pack is not None:
        rows = check_pack(pack, batch_size=batch_size, buckets=buckets, program=program)
        return packed_plan(dataset, order, pack, text_packed(pack, texts), batch_size=rows)
    if buckets is None and not isinstance(batch_size, Budget) and not program.drawn_per_step:
        return UniformPlan(length=len(dataset), batch_size=batch_size, **vars(order))
    # Before anything is read.
    check_order(length=len(dataset), batch_size=1 if isinstance(batch_size, Budget) else batch_size, **vars(order))
    text = text_of_buckets(buckets, texts)
    return _Grouping(dataset, order, batch_size, buckets, program, images, text).plan()


def text_of_buckets(buckets: Buckets | None, texts: Sequence[ResolvedText]) -> ResolvedText | None:
    """The field whose tokens tell samples apart. Raises UsageError where several could be meant."""
    if buckets is None or buckets.by != "length" or buckets.source is None:
        return None
    return text_measured(texts, buckets.source)


class _Grouping:
    """One plan in the making."""

    def __init__(
        self,
        dataset: Dataset,
        order: Order,
        batch_size: int | Budget,
        buckets: Buckets | None,
        program: Program,
        images: ViewedImages | None,
        text: ResolvedText | None,
    ) -> None:
        self._dataset = dataset
        self._order = order
        self._batch_size = batch_size
        self._buckets = buckets
        self._program = program
        self._images = images
        self._text = text
        self._check()
        self._sizes = self._read_sizes(None) if self._needs_sizes() else None
        self._key_sizes = self._sizes if buckets is None or buckets.source is None else self._sizes_of_source(buckets)

    def plan(self) -> ShapedPlan:
        coding = None if self._buckets is None else self._coding(self._buckets)
        members: Membership = OneBucket(len(self._dataset))
        if coding is not None:
            members = members_of(coding, length=len(self._dataset), used=self._used)
        output = self._program.output_size if self._images is not None else (0, 0)
        if output is None and self._sizes is not None:
            self._expect_sizes(self._sizes)
        views = StepViews(
            tables=self._program.scales,
            output=output,
            sizes=self._sizes,
            multiple_of=self._program.multiple_of,
        )
        capacity = self._capacity(members, views, coding)
        return ShapedPlan(
            members=members,
            capacity=capacity,
            views=views,
            joined=self._buckets is None or self._buckets.ordered,
            grouping="; ".join(self._words(members, capacity)),
            lengths=None if self._text is None else self._lengths,
            **vars(self._order),
        )

    def _check(self) -> None:
        budget, buckets = self._batch_size, self._buckets
        if len(self._program.scales) > 1 and not self._order.shuffle:
            raise UsageError(
                "shuffle: expected True beside a RandomScale of several scales, got False: each sample would have the "
                "same scale in every epoch; pass shuffle=True, or one scale"
            )
        if not isinstance(budget, Budget):
            return
        if budget.rank_multiple is not None and budget.rank_multiple % self._order.world_size:
            raise UsageError(
                f"Budget: expected rank_multiple to be a multiple of the world size {self._order.world_size}, got "
                f"{budget.rank_multiple}; take a multiple of every world size that the run may have"
            )
        if budget.unit == "pixels" and self._images is None:
            raise UsageError("Budget: pixels needs an image field, got none; use tokens=, bytes= or a batch_size")
        if budget.unit != "pixels" and (buckets is None or buckets.by != "length"):
            raise UsageError(
                f"Budget: {budget.unit} needs buckets=hr.Buckets('length', source=…), which says how long samples are, "
                f"got {buckets!r}"
            )
        if budget.unit == "bytes" and self._text is not None:
            raise UsageError(
                f"Budget: bytes needs lengths in bytes, got those of the field {self._text.name!r}, which are tokens; "
                "use tokens=, or measure a column that no field of text reads"
            )

    def _needs_sizes(self) -> bool:
        """Whether the sizes of the images that views are drawn from matter: to the shape, or to tell samples apart."""
        by = None if self._buckets is None or self._buckets.source is not None else self._buckets.by
        if self._images is None:
            if by in BY_SIZE:
                raise UsageError(f"Buckets: by={by!r} needs an image field, got none; name a column with source=")
            return False
        return by in BY_SIZE or callable(by) or self._program.output_size is None

    def _sizes_of_source(self, buckets: Buckets) -> ImageSizes | None:
        if buckets.by not in BY_SIZE:
            return self._sizes
        if self._sizes is not None and self._images is not None and self._images.column == buckets.source:
            return self._sizes
        return self._read_sizes(buckets.source)

    @property
    def _used(self) -> NDArray[np.int32] | None:
        """What samples are told apart by, which may be mapped from a file."""
        return None if self._key_sizes is None else self._key_sizes.known

    def _read_sizes(self, source: str | None) -> ImageSizes:
        """Of the column that views are drawn from, or of `source`."""
        images = self._images
        column = source if images is None or source is not None else images.column
        assert column is not None
        if images is None:
            return ImageSizes(image_sizes(self._dataset, column))
        exif = images.exif and images.column == column
        return ImageSizes(image_sizes(self._dataset, column, exif=exif, threads=images.threads, limits=images.limits))

    def _expect_sizes(self, sizes: ImageSizes) -> None:
        """Where none is known nothing tells the shape of a batch."""
        if any(sizes(positions).any() for positions in position_blocks(len(self._dataset))):
            return
        assert self._images is not None
        raise UsageError(
            f"view: expected the size of at least one image of column {self._images.column!r} to be readable, as the "
            "shapes of batches follow from them, got none; look at one with ds[0], name another field with view_from=, "
            "or give a view of fixed size"
        )

    def _coding(self, buckets: Buckets) -> Coding:
        length, seed = len(self._dataset), self._order.seed
        if callable(buckets.by):
            if buckets.ordered:
                numbers = bucket_keys.called_numbers(buckets.by, self._dataset, self._sizes)
                return by_numbers(numbers, buckets, length=length, seed=seed)
            return by_categories(bucket_keys.called_categories(buckets.by, self._dataset, self._sizes), length=length)
        if buckets.by == "length":
            return by_numbers(self._lengths, buckets, length=length, seed=seed)
        assert self._key_sizes is not None
        if not buckets.ordered:
            kind = bucket_keys.orientations if buckets.by == "orientation" else bucket_keys.exact_sizes
            return by_categories(kind(self._key_sizes), length=length)
        measure = bucket_keys.aspects if buckets.by == "aspect" else bucket_keys.areas
        return by_numbers(measure(self._key_sizes), buckets, length=length, seed=seed, used=self._used)

    @cached_property
    def _lengths(self) -> bucket_keys.Numbers:
        """What buckets of lengths measure."""
        assert self._buckets is not None
        assert self._buckets.source is not None
        if self._text is None:
            return bucket_keys.lengths(self._dataset, self._buckets.source)
        return bucket_keys.token_lengths(self._dataset, self._text.lengths(None))

    def _capacity(self, members: Membership, views: StepViews, coding: Coding | None) -> Capacity:
        budget, world_size = self._batch_size, self._order.world_size
        if not isinstance(budget, Budget):
            return FixedCapacity(budget * world_size)
        if budget.unit == "pixels":
            heights, widths = shape_bounds(members, self._sizes, views)
        else:
            heights, widths = length_bounds(members, self._lengths, len(views.tables))
            if self._text is not None:
                heights = np.vectorize(self._text.padded, otypes=[np.int64])(heights)
        capacity = BudgetCapacity(budget.amount * world_size, heights, widths, budget.rank_multiple or world_size)
        self._check_budget(budget, capacity, members, coding)
        return capacity

    def _check_budget(
        self, budget: Budget, capacity: BudgetCapacity, members: Membership, coding: Coding | None
    ) -> None:
        costs = np.where(members.counts[:, None] > 0, capacity.heights * capacity.widths, 0)
        bucket, scale = (int(at) for at in np.unravel_index(costs.argmax(), costs.shape))
        cost, multiple = int(costs[bucket, scale]), capacity.multiple
        if capacity.total // cost >= multiple:
            return
        name = "the dataset" if coding is None else coding.names(bucket)
        each = f"{cost} {budget.unit}"
        if budget.unit == "pixels":
            each = f"{capacity.heights[bucket, scale]} x {capacity.widths[bucket, scale]} (height x width) = {each}"
        needed = -(-cost * multiple // self._order.world_size)
        raise UsageError(
            f"Budget: expected room for {multiple} samples over {self._order.world_size} ranks in a batch of {name}, "
            f"whose largest is {each}: at least {budget.unit}={needed} a rank, got {budget.amount}; raise it, lower "
            "rank_multiple or the scales, or leave large samples out with select()"
        )

    def _words(self, members: Membership, capacity: Capacity) -> list[str]:
        words = []
        if self._buckets is not None:
            words.append(f"buckets {self._buckets} ({len(members.counts)}, {members.digest})")
        if self._program.drawn_per_step:
            scales = [[int(number) for number in table[0, 1:3]] for table in self._program.scales]
            words.append(f"scales {' '.join(str(short) for short, _ in scales)} long_max {scales[0][1] or None}")
        if isinstance(capacity, BudgetCapacity):
            assert isinstance(self._batch_size, Budget)
            digest = hashlib.blake2b(digest_size=8)
            for bound in (capacity.heights, capacity.widths):
                digest.update(np.ascontiguousarray(bound, "<i8").data)
            words.append(
                f"budget {capacity.total} {self._batch_size.unit} over all ranks, rank_multiple {capacity.multiple} "
                f"({digest.hexdigest()})"
            )
        return words
