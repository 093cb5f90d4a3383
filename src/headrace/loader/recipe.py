"""`Recipe`, the full description of a pass, and the dataset's columns that each field reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, cast

import numpy as np

from headrace._core import Limits
from headrace.augment import AugmentProgram
from headrace.data import ITEM, Dataset, HeldColumn, ListItems
from headrace.fields import Field, Image, Images, ResolvedText, Spatial
from headrace.plan import EpochPlan
from headrace.system import THREAD_PREFIX
from headrace.views import Program

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

    from headrace.loader.batch_mixing import BatchMixing
    from headrace.loader.device_augment import DeviceAugment


Sample: TypeAlias = dict[str, Any]
Batch: TypeAlias = dict[str, Any]
SampleMap: TypeAlias = Callable[[Sample, np.random.Generator], Sample]
BatchMap: TypeAlias = Callable[[Batch, np.random.Generator], Batch]
OnError: TypeAlias = Literal["replace", "raise"]
Output: TypeAlias = Literal["torch", "numpy"]
DecodeOn: TypeAlias = Literal["core", "device"]


@dataclass(frozen=True)
class FieldColumns:
    """Fields grouped by the way they are made, with their columns."""

    images: tuple[tuple[str, Spatial, str], ...]
    """Fields of pixels as (name, field, column), in the order in which the core works on them.

    Views are drawn from the size of the first field, which has scale 1. Fields with their own views come last."""
    raws: tuple[tuple[str, Field, str], ...]
    """Fields made from a column's undecoded bytes."""
    values: tuple[tuple[str, HeldColumn], ...]
    """Fields that the dataset holds, as (name, column)."""
    lists: tuple[tuple[str, Images, ListItems], ...]
    """Fields of several images a sample, as (name, field, images)."""
    has_places: bool
    """True if there are boxes, keypoints, instance masks or geometry, which follow the views."""

    @property
    def followers(self) -> tuple[tuple[str, Spatial, str], ...]:
        """Fields of pixels that follow the Loader's view."""
        return tuple(image for image in self.images if not draws_view(image[1]))

    @property
    def pictures(self) -> tuple[tuple[str, Spatial, str], ...]:
        """Fields of pixels, with the images of fields of several images a sample."""
        return (*self.images, *((name, field.image, name) for name, field, _ in self.lists))

    @property
    def read_columns(self) -> list[str]:
        """Columns of bytes that the core reads, each once."""
        return list(dict.fromkeys(column for _, _, column in (*self.images, *self.raws)))

    def of(self, fields: Mapping[str, Field]) -> Self:
        """Return the same columns for fields of the same names whose output differs."""
        images = tuple((name, cast(Spatial, fields[name]), column) for name, _, column in self.images)
        lists = tuple((name, cast(Images, fields[name]), items) for name, _, items in self.lists)
        raws = tuple((name, fields[name], column) for name, _, column in self.raws)
        return replace(self, images=images, raws=raws, lists=lists)


@dataclass(frozen=True, kw_only=True)
class Recipe(FieldColumns):
    """Full description of a pass, frozen and resolved against the dataset."""

    dataset: Dataset
    plan: EpochPlan
    program: Program
    augment: AugmentProgram | None
    """Augmentations of the sample, with one draw for all its fields."""
    colours: DeviceAugment | None
    """Augmentations of samples and fields that the device runs instead of the core."""
    fields: Mapping[str, Field]
    texts: tuple[ResolvedText, ...]
    packed: str | None
    """Name of the text field that the plan packs into shared rows."""
    measured: str | None
    """Name of the text field with the lengths that decide which samples share a batch."""
    threads: int
    """Maximum threads at a time; a pass's setting is the number at work."""
    prefetch: int
    """Maximum batches in flight or ready."""
    on_error: OnError
    leaves_out: bool = False
    """True to leave bad samples out of the batch, as `decode_batch` may: neither replaced nor raised."""
    max_bad: float
    output: Output
    map: SampleMap | None
    map_workers: int
    """Processes for `map`; 0 for threads."""
    multiprocessing_context: str | BaseContext | None
    batch_map: BatchMap | None
    mixing: BatchMixing | None
    level: str
    limits: Limits
    decode_on: str | None = None
    """Device that decodes images; None for the core."""
    pass_samples: int | None = None
    """Number of different samples that this rank takes in a pass; None for its part of the plan's epoch."""

    @property
    def is_remote(self) -> bool:
        """True if some bytes are in stores."""
        datasets = [(self.dataset, column) for column in self.read_columns]
        datasets += [(items.dataset, ITEM) for _, _, items in self.lists]
        return any(dataset.files(column).is_remote for dataset, column in datasets)

    @property
    def thread_prefix(self) -> str:
        """Prefix of the names of a pass's threads: of its own if they call functions of the user's."""
        return f"{THREAD_PREFIX}user-" if self.batch_map is not None or self.texts else THREAD_PREFIX


def draws_view(field: Spatial) -> bool:
    return isinstance(field, Image) and field.draws_view


def scale_of(field: Spatial) -> int:
    """Return the factor of the Loader's view that a field's output has."""
    return field.scale if isinstance(field, Image) else 1
