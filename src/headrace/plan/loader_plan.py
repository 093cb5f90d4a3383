"""Plan of a Loader, from its arguments and the sizes and lengths of the dataset's samples."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headrace._core import Limits
from headrace.data import Dataset, image_sizes, mapped_zeros, position_blocks, stated_columns
from headrace.errors import UsageError
from headrace.fields import ResolvedText, text_measured
from headrace.plan import bucket_keys
from headrace.plan.batch_cutting import Capacity
from headrace.plan.batching import Buckets, Budget, SequencePacking
from headrace.plan.best_fit import SequencesByLength
from headrace.plan.bucket_codes import Coding, by_categories, by_numbers, length_bounds, members_of, shape_bounds
from headrace.plan.bucket_members import BucketMembers, OneBucket
from headrace.plan.draws import BucketFactors, Floats
from headrace.plan.mixture import EpochPlan
from headrace.plan.order import Order
from headrace.plan.packed_plan import PackedPlan
from headrace.plan.sampling import Sampling, digest_of
from headrace.plan.shaped_plan import ShapedPlan
from headrace.plan.step_views import ImageSizes, StepViews
from headrace.plan.token_costs import CountedImages, image_tokens
from headrace.plan.uniform_plan import UniformPlan
from headrace.plan.windowed import Windowed
from headrace.views import Program

Lengths = NDArray[np.int32]

MOST_TOKENS_A_BATCH = (1 << 31) - 1
"""Upper bound for one rank: kernels take boundaries as int32."""


def packed_plan(
    dataset: Dataset,
    order: Order,
    pack: SequencePacking,
    texts: Sequence[ResolvedText],
    *,
    batch_size: int | Budget,
    buckets: Buckets | None,
    program: Program,
    counted: Sequence[CountedImages],
) -> PackedPlan:
    """Return a plan of rows of the dataset's texts, and of `counted` images. It counts their tokens unless cached.

    Raises UsageError if `pack` is not a SequencePacking, and for arguments that do not go with it.
    """
    if not isinstance(pack, SequencePacking):
        raise UsageError(f"pack: expected hr.SequencePacking(…) or None, got {pack!r}")
    if buckets is not None:
        raise UsageError(f"pack: expected no buckets alongside, got {buckets!r}: rows are full already; leave one out")
    if isinstance(batch_size, Budget):
        raise UsageError(
            f"batch_size: expected rows of {pack.length} tokens with pack=, got {batch_size!r}; pass how many"
        )
    if program.drawn_per_step:
        raise UsageError(
            "pack: expected no RandomScale, which draws a shape at each step, got one; use a view of fixed size"
        )
    text = text_packed(pack, texts)
    order.check_sizes(length=len(dataset), batch_size=batch_size)
    if batch_size * pack.length > MOST_TOKENS_A_BATCH:
        raise UsageError(
            f"batch_size: expected at most {MOST_TOKENS_A_BATCH // pack.length} rows of {pack.length} tokens a rank, "
            f"got {batch_size}"
        )
    lengths = known_lengths(dataset, text.lengths(), text.name)
    if pack.tokens_per_image is not None:
        costs = lengths + image_tokens(dataset, counted, pack.tokens_per_image)
        large = np.flatnonzero(costs > pack.length)
        if len(large):
            raise UsageError(
                f"pack: expected samples of at most the {pack.length:,} tokens of a row with their images, got "
                f"{len(large):,} larger ones, such as {dataset.key(int(large[0]))!r} of {int(costs[large[0]]):,}; "
                "raise the rows' length, lower max_length or tokens_per_image, or leave them out with select()"
            )
        lengths = costs.astype(np.int32)
    sequences = SequencesByLength.of(lengths, pack.length, mapped_zeros)
    return PackedPlan(sequences=sequences, row=pack.length, batch_size=batch_size, **vars(order))


def text_packed(pack: SequencePacking, texts: Sequence[ResolvedText]) -> ResolvedText:
    """Return the text field to pack. Raises UsageError if there is none, several, or one that does not fit."""
    names = [text.name for text in texts]
    if not names:
        raise UsageError("pack: expected a field of text, such as {'text': hr.Text(…)}, got none")
    if pack.field is None and len(names) > 1:
        raise UsageError(
            f"pack: expected to know which of {names} is packed; pass hr.SequencePacking({pack.length}, field=…)"
        )
    if pack.field is not None and pack.field not in names:
        raise UsageError(f"pack: expected field to be one of the text fields {names}, got {pack.field!r}")
    text = texts[0 if pack.field is None else names.index(pack.field)]
    if text.field.max_length > pack.length:
        raise UsageError(
            f"field {text.name!r}: expected max_length of at most the {pack.length} tokens of a row, got "
            f"{text.field.max_length}; lower it, or raise the rows' length"
        )
    if text.field.pad != "batch":
        raise UsageError(
            f"field {text.name!r}: a packed text is padded with its row, got pad={text.field.pad!r}; leave it out"
        )
    return text


def known_lengths(dataset: Dataset, lengths: Lengths, name: str) -> Lengths:
    """Return `lengths`, which are by base id, by position in the dataset.

    A sample with an unusable text, -1, gets the median length of the others: a sample of that length exists to replace
    it.
    """
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


BY_SIZE = ("aspect", "orientation", "size")


@dataclass(frozen=True, kw_only=True)
class ViewedImages:
    """Column of images that views are drawn from."""

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
    texts: Sequence[ResolvedText],
    pack: SequencePacking | None,
    sampling: Sampling,
    windowed: Windowed | None = None,
    counted: Sequence[CountedImages] = (),
) -> EpochPlan:
    """Return the plan for these arguments. It reads sizes of images if they matter and are not cached.

    `counted`: images whose tokens count, with `tokens_per_image` of buckets or packed rows.

    Raises UsageError for arguments that do not go together, and for a budget that is too small.
    """
    if buckets is not None and not isinstance(buckets, Buckets):
        raise UsageError(f"buckets: expected hr.Buckets(…) or None, got {buckets!r}")
    grouped_by = _grouped_by(batch_size, buckets, pack, program)
    sampling.check(order, dataset, grouped_by)
    if windowed is not None:
        windowed.check(shuffle=order.shuffle, grouped_by=grouped_by, replaces=sampling.replaces)
    if pack is not None:
        return packed_plan(
            dataset, order, pack, texts, batch_size=batch_size, buckets=buckets, program=program, counted=counted
        )
    # Before anything is read.
    order.check_sizes(length=len(dataset), batch_size=1 if isinstance(batch_size, Budget) else batch_size)
    if grouped_by is None and not isinstance(batch_size, Budget):
        draws = sampling.draws(dataset)
        length = len(dataset) if draws is None else draws.count
        window = None if windowed is None else windowed.resolve(dataset)
        return UniformPlan(length=length, batch_size=batch_size, draws=draws, window=window, **vars(order))
    text = text_of_buckets(buckets, texts)
    return _ShapedPlanner(dataset, order, batch_size, buckets, program, images, text, sampling, counted).plan()


def _grouped_by(
    batch_size: int | Budget, buckets: Buckets | None, pack: SequencePacking | None, program: Program
) -> str | None:
    """Return the name of the argument that groups samples into batches; None if there is none."""
    groups = {
        "pack=": pack is not None,
        "buckets=": buckets is not None,
        "a Budget as batch_size=": isinstance(batch_size, Budget),
        "a RandomScale": program.drawn_per_step,
    }
    return next((name for name, given in groups.items() if given), None)


def text_of_buckets(buckets: Buckets | None, texts: Sequence[ResolvedText]) -> ResolvedText | None:
    """Return the field with the tokens that buckets measure. Raises UsageError if several fields qualify."""
    if buckets is None or buckets.by != "length" or buckets.source is None:
        return None
    return text_measured(texts, buckets.source)


@dataclass(frozen=True)
class _ShapedPlanner:
    """Builder of one ShapedPlan."""

    dataset: Dataset
    order: Order
    batch_size: int | Budget
    buckets: Buckets | None
    program: Program
    images: ViewedImages | None
    text: ResolvedText | None
    sampling: Sampling
    counted: Sequence[CountedImages]

    @cached_property
    def _sizes(self) -> ImageSizes | None:
        return self._read_sizes(None) if self._needs_sizes() else None

    @cached_property
    def _key_sizes(self) -> ImageSizes | None:
        buckets, viewed = self.buckets, None if self.images is None else self.images.column
        if buckets is None or buckets.source is None or buckets.by not in BY_SIZE:
            return self._sizes
        is_viewed = self._sizes is not None and viewed == buckets.source
        return self._sizes if is_viewed else self._read_sizes(buckets.source)

    def plan(self) -> ShapedPlan:
        """Return the plan. Raises UsageError before anything is read."""
        self._check()
        factors = self.sampling.factors(self.dataset)
        coding = None if self.buckets is None else self._coding(self.buckets)
        members: BucketMembers = OneBucket(len(self.dataset))
        if coding is not None:
            members = members_of(coding, length=len(self.dataset), used=self._used)
        output = self.program.output_size if self.images is not None else (0, 0)
        if output is None and self._sizes is not None:
            self._expect_sizes(self._sizes)
        views = StepViews(
            tables=self.program.scales,
            output=output,
            sizes=self._sizes,
            multiple_of=self.program.multiple_of,
        )
        capacity = self._capacity(members, views, coding)
        return ShapedPlan(
            members=members,
            capacity=capacity,
            views=views,
            joined=self.buckets is None or self.buckets.ordered,
            grouping="; ".join(self._describe(members, capacity, factors)),
            lengths=None if self.text is None else self._lengths,
            factors=None if factors is None else BucketFactors.of(members, factors),
            **vars(self.order),
        )

    def _check(self) -> None:
        budget, buckets = self.batch_size, self.buckets
        if len(self.program.scales) > 1 and not self.order.shuffle:
            raise UsageError(
                "shuffle: expected True with a RandomScale of several scales, got False: each sample would have the "
                "same scale in every epoch; pass shuffle=True, or one scale"
            )
        if not isinstance(budget, Budget):
            return
        if budget.rank_multiple is not None and budget.rank_multiple % self.order.world_size:
            raise UsageError(
                f"Budget: expected rank_multiple to be a multiple of the world size {self.order.world_size}, got "
                f"{budget.rank_multiple}; take a multiple of every world size that the run may have"
            )
        if budget.unit == "pixels" and self.images is None:
            raise UsageError(
                "Budget: pixels needs an image field that follows the Loader's view, got none; use tokens=, bytes= or "
                "a batch_size"
            )
        if budget.unit != "pixels" and (buckets is None or buckets.by != "length"):
            raise UsageError(
                f"Budget: {budget.unit} needs buckets=hr.Buckets('length', source=…), which says how long samples are, "
                f"got {buckets!r}"
            )
        if budget.unit == "bytes" and self.text is not None:
            raise UsageError(
                f"Budget: bytes needs lengths in bytes, got those of the field {self.text.name!r}, which are tokens; "
                "use tokens=, or measure a column that no field of text reads"
            )

    def _needs_sizes(self) -> bool:
        """Return True if the sizes of the viewed images matter, to the shape or to the buckets."""
        by = None if self.buckets is None or self.buckets.source is not None else self.buckets.by
        if self.images is None:
            if by in BY_SIZE:
                raise UsageError(
                    f"Buckets: by={by!r} needs an image field that follows the Loader's view, got none; name a column "
                    "with source="
                )
            return False
        return by in BY_SIZE or callable(by) or self.program.output_size is None

    @property
    def _used(self) -> NDArray[np.int32] | None:
        """Sizes that decide a sample's bucket, which may be mapped from a file."""
        return None if self._key_sizes is None else self._key_sizes.known

    def _read_sizes(self, source: str | None) -> ImageSizes:
        """Read the sizes of the column that views are drawn from, or of `source`."""
        images = self.images
        column = source if images is None or source is not None else images.column
        assert column is not None
        exif = not stated_columns(self.dataset, column)  # what is stated of images that no view is drawn for is enough
        if images is None:
            return ImageSizes(image_sizes(self.dataset, column, exif=exif))
        exif = images.exif if images.column == column else exif
        return ImageSizes(image_sizes(self.dataset, column, exif=exif, threads=images.threads, limits=images.limits))

    def _expect_sizes(self, sizes: ImageSizes) -> None:
        """Raise UsageError if no size is known, since nothing would decide the shape of a batch."""
        if any(sizes(positions).any() for positions in position_blocks(len(self.dataset))):
            return
        assert self.images is not None
        raise UsageError(
            f"view: expected the size of at least one image of column {self.images.column!r} to be readable, as the "
            "shapes of batches follow from them, got none; look at one with ds[0], name another field with view_from=, "
            "or give a view of fixed size"
        )

    def _coding(self, buckets: Buckets) -> Coding:
        length, seed = len(self.dataset), self.order.seed
        if callable(buckets.by):
            if buckets.ordered:
                numbers = bucket_keys.called_numbers(buckets.by, self.dataset, self._sizes)
                return by_numbers(numbers, buckets, length=length, seed=seed)
            return by_categories(bucket_keys.called_categories(buckets.by, self.dataset, self._sizes), length=length)
        if buckets.by == "length":
            return by_numbers(self._costs, buckets, length=length, seed=seed)
        assert self._key_sizes is not None
        if not buckets.ordered:
            return by_categories(bucket_keys.size_categories(buckets.by, self._key_sizes), length=length)
        numbers = bucket_keys.size_numbers(buckets.by, self._key_sizes)
        return by_numbers(numbers, buckets, length=length, seed=seed, used=self._used)

    @cached_property
    def _lengths(self) -> bucket_keys.Numbers:
        """Lengths that buckets measure."""
        assert self.buckets is not None
        assert self.buckets.source is not None
        if self.text is None:
            return bucket_keys.lengths(self.dataset, self.buckets.source)
        return bucket_keys.token_lengths(self.dataset, self.text.lengths())

    @cached_property
    def _costs(self) -> bucket_keys.Numbers:
        """Lengths that decide a sample's bucket and a budget: with those of its images, if they count."""
        assert self.buckets is not None
        tokens = self.buckets.tokens_per_image
        if tokens is None:
            return self._lengths
        lengths, of_images = self._lengths, image_tokens(self.dataset, self.counted, tokens)
        return lambda positions: lengths(positions) + of_images[positions]

    def _capacity(self, members: BucketMembers, views: StepViews, coding: Coding | None) -> Capacity:
        budget, world_size = self.batch_size, self.order.world_size
        if not isinstance(budget, Budget):
            return Capacity(budget * world_size, budget * world_size)
        if budget.unit == "pixels":
            heights, widths = shape_bounds(members, self._sizes, views)
        else:
            heights, widths = length_bounds(members, self._costs, len(views.tables))
            if self.text is not None and (self.buckets is None or self.buckets.tokens_per_image is None):
                heights = np.vectorize(self.text.padded, otypes=[np.int64])(heights)
        total, multiple = budget.amount * world_size, budget.rank_multiple or world_size
        costs = np.where(members.counts[:, None] > 0, heights * widths, 0)
        bucket, scale = (int(at) for at in np.unravel_index(costs.argmax(), costs.shape))
        cost = int(costs[bucket, scale])
        if total // cost >= multiple:
            return Capacity(total, multiple, (heights, widths))
        name = "the dataset" if coding is None else coding.names(bucket)
        each = f"{cost} {budget.unit}"
        if budget.unit == "pixels":
            each = f"{heights[bucket, scale]} x {widths[bucket, scale]} (height x width) = {each}"
        needed = -(-cost * multiple // world_size)
        raise UsageError(
            f"Budget: expected room for {multiple} samples over {world_size} ranks in a batch of {name}, "
            f"whose largest is {each}: at least {budget.unit}={needed} a rank, got {budget.amount}; raise it, lower "
            "rank_multiple or the scales, or leave large samples out with select()"
        )

    def _describe(self, members: BucketMembers, capacity: Capacity, factors: Floats | None) -> list[str]:
        words = [] if factors is None else [f"repeat factors ({digest_of(factors)})"]
        if self.buckets is not None:
            words.append(f"buckets {self.buckets} ({len(members.counts)}, {members.digest})")
        if self.program.drawn_per_step:
            scales = [[int(number) for number in table[0, 1:3]] for table in self.program.scales]
            words.append(f"scales {' '.join(str(short) for short, _ in scales)} long_max {scales[0][1] or None}")
        if isinstance(self.batch_size, Budget):
            digest = hashlib.blake2b(digest_size=8)
            for bound in capacity.bounds or ():
                digest.update(np.ascontiguousarray(bound, "<i8").data)
            words.append(
                f"budget {capacity.total} {self.batch_size.unit} over all ranks, rank_multiple {capacity.multiple} "
                f"({digest.hexdigest()})"
            )
        return words
