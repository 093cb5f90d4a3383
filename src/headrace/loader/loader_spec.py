"""`LoaderSpec`, the arguments of a Loader, and their resolution: the recipe of its batches, and what passes share."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace._core import Limits
from headrace.augment import AnyMixing, Augmentation, AugmentProgram, compile_augment
from headrace.data import ITEM, Dataset, Where
from headrace.data import open as open_dataset
from headrace.errors import UsageError
from headrace.fetch import check_window_memory
from headrace.fields import Field, Image, ResolvedText, resolve_texts
from headrace.loader.arguments import (
    check_augment,
    check_device_decoding,
    check_last_batch,
    check_lists,
    check_map,
    check_values,
    check_views,
    place_fields,
)
from headrace.loader.autotuning.tuner import tuner_of
from headrace.loader.bad_samples import Quarantine
from headrace.loader.batch_mixing import BatchMixing, check_pairs, resolve_mixing
from headrace.loader.cache import EpochCache, open_cache
from headrace.loader.device_augment import AugmentOn, DeviceAugment, resolve_device_augment
from headrace.loader.feed import Feed
from headrace.loader.ray_workers.cluster import RayCluster, Workers, check_travels, connect
from headrace.loader.recipe import BatchMap, DecodeOn, FieldColumns, OnError, Output, Recipe, SampleMap
from headrace.loader.resolving import obvious_fields, resolve_columns
from headrace.plan import (
    Buckets,
    Budget,
    CountedImages,
    EpochPlan,
    NodeRanks,
    Order,
    Remainder,
    RepeatFactor,
    Sampling,
    SequencePacking,
    ShuffleOrder,
    UniformPlan,
    ViewedImages,
    Windowed,
    plan_of,
    text_of_buckets,
    text_packed,
    windowed_of,
)
from headrace.system import ProcessRank, rank_of_process, ranks_of_node
from headrace.views import Program, View, compile_view

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

    import torch
    from numpy.typing import NDArray

    from headrace.device import Placement


@dataclass(frozen=True, kw_only=True)
class LoaderSpec:
    """Arguments of a Loader, as the user gave them. `Loader` documents each, and has the defaults."""

    data: Dataset | Where
    fields: Mapping[str, Field] | None
    view: View | Sequence[View] | None
    view_from: str | None
    augment: Augmentation | str | Sequence[Augmentation | str] | None
    augment_on: AugmentOn
    batch_size: int | Budget
    buckets: Buckets | None
    pack: SequencePacking | None
    shuffle: bool
    seed: int
    order: ShuffleOrder
    weights: str | Sequence[float] | NDArray[Any] | None
    balanced: str | RepeatFactor | None
    repeats: int
    samples_per_epoch: int | None
    remainder: Remainder
    threads: int | None
    prefetch: int | None
    on_error: OnError
    max_bad: float
    quarantine: str | os.PathLike[str] | None
    map: SampleMap | None
    map_workers: int
    multiprocessing_context: str | BaseContext | None
    batch_map: BatchMap | None
    batch: AnyMixing | None
    rank: int | None
    world_size: int | None
    output: Output
    device: str | torch.device | None
    decode: DecodeOn
    cache: str | None
    limits: Limits | None
    instruction_set: str
    workers: Workers


@dataclass(frozen=True)
class _FieldStages:
    """Fields as the host makes them, and the stages after decoding that change them."""

    fields: Mapping[str, Field]
    columns: FieldColumns
    augment: AugmentProgram | None
    """Augmentations of the sample, on the host or on the device."""
    colours: DeviceAugment | None
    placement: Placement | None
    mixing: BatchMixing | None

    @property
    def augments_on_host(self) -> bool:
        own = any(getattr(field, "augment", None) for _, field, _ in self.columns.pictures)
        return self.colours is None and (self.augment is not None or own)


def feed_of(spec: LoaderSpec) -> Feed:
    """Return the feed of a Loader.

    Raises UsageError for arguments that do not fit each other or the dataset, before any data is read.
    """
    dataset = spec.data if isinstance(spec.data, Dataset) else open_dataset(spec.data)
    rank = rank_of_process(spec.rank, spec.world_size)
    order = Order(
        world_size=rank.world_size, rank=rank.rank, shuffle=spec.shuffle, seed=spec.seed, remainder=spec.remainder
    )
    windowed = windowed_of(spec.order)
    _ = dataset.occurrences  # too many repeats for random draws raise here, not in a thread
    stages = _field_stages(spec, dataset)
    program = compile_view(spec.view)
    check_views(stages.columns.pictures, spec.view, program)
    texts = resolve_texts(dataset, stages.fields)
    plan = _plan(spec, dataset, order, windowed, stages.columns, program, texts)
    packed = None if spec.pack is None else text_packed(spec.pack, texts)
    measured = text_of_buckets(spec.buckets, texts)
    check_last_batch(plan, spec.map)
    _check_decoding(spec, stages, plan, program)
    if stages.mixing is not None:
        check_pairs(plan, rank.world_size)
    cluster = _cluster(spec, rank)
    tuner = tuner_of(spec.threads, spec.prefetch if cluster is None else cluster.window(spec.prefetch))
    placement = stages.placement
    recipe = Recipe(
        dataset=dataset,
        plan=plan,
        program=program,
        augment=stages.augment if stages.colours is None else None,
        colours=stages.colours,
        fields=stages.fields,
        **vars(stages.columns),
        texts=texts,
        packed=None if packed is None else packed.name,
        measured=None if measured is None else measured.name,
        threads=tuner.most.threads,
        prefetch=tuner.most.prefetch,
        on_error=spec.on_error,
        max_bad=spec.max_bad,
        output=spec.output,
        map=spec.map,
        map_workers=spec.map_workers,
        multiprocessing_context=spec.multiprocessing_context,
        batch_map=spec.batch_map,
        mixing=stages.mixing,
        level=spec.instruction_set,
        limits=Limits() if spec.limits is None else spec.limits,
        decode_on=str(placement.device) if placement is not None and spec.decode == "device" else None,
        pass_samples=plan.rank_samples if isinstance(plan, UniformPlan) else None,
    )
    if cluster is not None:
        check_travels(recipe)
    return Feed(
        recipe,
        rank=rank,
        tuner=tuner,
        placement=placement,
        cache=_cache(spec, recipe, rank),
        quarantine=None if spec.quarantine is None else Quarantine(Path(spec.quarantine)),
        cluster=cluster,
    )


def _field_stages(spec: LoaderSpec, dataset: Dataset) -> _FieldStages:
    if spec.fields is not None and not isinstance(spec.fields, Mapping):
        raise UsageError(
            f"fields: expected a dict of names to fields, such as {{'image': hr.Image()}}, got {spec.fields!r}"
        )
    fields: Mapping[str, Field] = dict(spec.fields) if spec.fields is not None else obvious_fields(dataset)
    columns = resolve_columns(dataset, fields, spec.view_from)
    augment = compile_augment("augment", spec.augment)
    check_augment(augment, columns.pictures, has_places=columns.has_places)
    refused = {
        "batch": spec.batch is not None,
        "decode": spec.decode == "device",
        "augment_on": spec.augment_on == "device",
        "workers": spec.workers is not None,
        "map": spec.map is not None,
        "view": compile_view(spec.view).drawn_per_step and not columns.followers,
    }
    check_lists(columns, refused=refused)
    if spec.view is not None and not columns.pictures:
        raise UsageError("view: expected a field of pixels to cut, got none; leave view out")
    check_values(
        threads=spec.threads,
        prefetch=spec.prefetch,
        on_error=spec.on_error,
        max_bad=spec.max_bad,
        output=spec.output,
        instruction_set=spec.instruction_set,
        fields=fields,
    )
    check_map(spec.map, spec.map_workers, spec.multiprocessing_context, spec.pack)
    core_floats = spec.map is not None or (augment is not None and augment.erases)
    fields, colours, placement = _place(spec, fields, augment, core_floats=core_floats)
    mixing = None
    if spec.batch is not None:
        if spec.pack is not None:
            raise UsageError(
                "batch: expected None with pack=, whose samples share rows of tokens, got a mixing; leave it out"
            )
        on_device = placement is not None and spec.batch_map is None
        mixing = resolve_mixing(spec.batch, dataset, fields, core_floats=core_floats, on_device=on_device)
        fields = mixing.on_host(fields)
    return _FieldStages(fields, columns.of(fields), augment, colours, placement, mixing)


def _place(
    spec: LoaderSpec, fields: Mapping[str, Field], augment: AugmentProgram | None, *, core_floats: bool
) -> tuple[Mapping[str, Field], DeviceAugment | None, Placement | None]:
    """Return the fields as the host makes them, the colours that the device augments, and the device."""
    python = spec.map is not None or spec.batch_map is not None
    colours = resolve_device_augment(spec.augment_on, augment, fields, device=spec.device, python=python)
    if spec.decode not in ("core", "device"):
        raise UsageError(f"decode: expected 'core' or 'device', got {spec.decode!r}")
    decodes = spec.decode == "device"
    if spec.device is None and not decodes:
        return fields, None, None
    on_host = fields if colours is None else colours.on_host(fields)
    host_floats = colours is None and (core_floats or spec.batch_map is not None)
    placement = place_fields(spec.device or "cpu", spec.output, on_host, host_floats=host_floats, decodes=decodes)
    return (fields, None, None) if placement is None else (placement.fields, colours, placement)


def _plan(
    spec: LoaderSpec,
    dataset: Dataset,
    order: Order,
    windowed: Windowed | None,
    columns: FieldColumns,
    program: Program,
    texts: tuple[ResolvedText, ...],
) -> EpochPlan:
    first_images = None  # views are drawn from the sizes of these images
    if columns.followers:
        _, field, column = columns.followers[0]
        first_images = ViewedImages(column=column, exif=field.exif, threads=spec.threads, limits=spec.limits)
    plan = plan_of(
        dataset,
        order,
        batch_size=spec.batch_size,
        buckets=spec.buckets,
        program=program,
        images=first_images,
        texts=texts,
        pack=spec.pack,
        sampling=Sampling(
            weights=spec.weights,
            balanced=spec.balanced,
            repeats=spec.repeats,
            samples_per_epoch=spec.samples_per_epoch,
        ),
        windowed=windowed,
        counted=_counted_images(dataset, columns),
    )
    check_window_memory(dataset, columns.read_columns, plan)
    return plan


def _counted_images(dataset: Dataset, columns: FieldColumns) -> list[CountedImages]:
    """Return the images whose tokens count in buckets and packed rows."""
    single = [
        CountedImages(dataset, column, field.exif) for _, field, column in columns.images if isinstance(field, Image)
    ]
    several = [
        CountedImages(items.dataset, ITEM, field.image.exif, items.offsets, field.count)
        for _, field, items in columns.lists
    ]
    return [*single, *several]


def _check_decoding(spec: LoaderSpec, stages: _FieldStages, plan: EpochPlan, program: Program) -> None:
    if spec.decode == "device":
        check_device_decoding(
            stages.columns,
            plan,
            program.output_size,
            output=spec.output,
            on_host={"map": spec.map, "batch_map": spec.batch_map, "cache": spec.cache, "pack": spec.pack},
            augments_on_host=stages.augments_on_host,
        )


def _cluster(spec: LoaderSpec, rank: ProcessRank) -> RayCluster | None:
    decode = spec.decode if spec.decode == "device" else None
    refused = {"cache": spec.cache, "map_workers": spec.map_workers, "decode": decode}
    return connect(spec.workers, world_size=rank.world_size, refused=refused)


def _cache(spec: LoaderSpec, recipe: Recipe, rank: ProcessRank) -> EpochCache | None:
    if spec.cache is None:
        return None
    on_node = ranks_of_node(rank, os.environ)
    return open_cache(spec.cache, recipe, None if on_node is None else NodeRanks(*on_node))
