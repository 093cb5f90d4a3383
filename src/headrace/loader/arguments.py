"""Checks of a Loader's arguments. Each check raises UsageError before any data is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace import _core
from headrace.augment import AugmentProgram
from headrace.errors import UsageError
from headrace.fields import Field, Image, Spatial
from headrace.loader.recipe import FieldColumns, SampleMap, scale_of
from headrace.plan import EpochPlan, SequencePacking, UniformPlan
from headrace.views import Program

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

    import torch

    from headrace.device import Placement


def check_values(
    *,
    threads: int | None,
    prefetch: int | None,
    on_error: str,
    max_bad: float,
    output: str,
    instruction_set: str,
    fields: Mapping[str, Field],
) -> None:
    for name, value in (("threads", threads), ("prefetch", prefetch)):
        if value is not None and (type(value) is not int or value < 1):
            raise UsageError(f"{name}: expected an int of at least 1, got {value!r}")
    if on_error not in ("replace", "raise"):
        raise UsageError(f"on_error: expected 'replace' or 'raise', got {on_error!r}")
    if type(max_bad) not in (int, float) or not 0 <= max_bad <= 1:
        raise UsageError(f"max_bad: expected a share from 0 to 1, got {max_bad!r}")
    if output not in ("torch", "numpy"):
        raise UsageError(f"output: expected 'torch' or 'numpy', got {output!r}")
    for name, field in fields.items():
        if output == "numpy" and isinstance(field, Spatial) and field.dtype == "bfloat16":
            raise UsageError(f"field {name!r}: numpy has no bfloat16; use output='torch' or dtype='float32'")
    if output == "torch":
        need_torch("output='torch'", instead="; or pass output='numpy'")
    try:
        _core.parse_level(instruction_set)
    except ValueError as error:
        raise UsageError(f"instruction_set: {error}; leave it out to take the best") from None


def check_map(
    map: SampleMap | None, workers: int, context: str | BaseContext | None, pack: SequencePacking | None
) -> None:
    if type(workers) is not int or workers < 0:
        raise UsageError(f"map_workers: expected an int of at least 0, got {workers!r}")
    if workers and map is None:
        raise UsageError(f"map_workers: expected map= with it, got map_workers={workers} and nothing to run in them")
    if not workers and context is not None:
        raise UsageError(
            f"multiprocessing_context: expected map_workers= of at least 1 with it, got {context!r} for no process"
        )
    if workers:
        from headrace.loader.map_workers.processes import check_context, check_may_start

        check_context(context)
        check_may_start(workers)
    if pack is not None and map is not None:
        raise UsageError(
            "map: expected None with pack=, got a function of a sample, whose text lies in a row with others; use "
            "batch_map=, which is given the rows"
        )


def check_augment(
    program: AugmentProgram | None, images: Sequence[tuple[str, Spatial, str]], *, has_places: bool
) -> None:
    """Raise UsageError if fields cannot take the sample's augmentations. `has_places`: boxes, keypoints or masks."""
    if program is None:
        return
    pictures = [field for _, field, _ in images if isinstance(field, Image)]
    if not pictures and not program.moves_pixels:
        raise UsageError("augment: expected a field of images, got none; leave augment out")
    if program.mixes and program.moves_pixels and (has_places or len(pictures) < len(images)):
        raise UsageError(
            "augment: expected no AugMix of geometric operations with masks, depth, normals, boxes or keypoints, since "
            "the images that it mixes lie differently; give it to Image(augment=…)"
        )
    scaled = [name for name, field, _ in images if scale_of(field) > 1]
    if scaled and (program.moves_pixels or program.erases):
        raise UsageError(
            f"augment: expected operations on colours alone with scale= of field {scaled[0]!r}, got geometry or "
            "RandomErasing, whose places are whole pixels of one scale; flip and turn by view=, or pass "
            "Image(augment=…)"
        )
    wide = [name for name, field, _ in images if isinstance(field, Image) and field.wide]
    if wide:
        raise UsageError(
            f"augment: expected images of 8 bits a channel, got field {wide[0]!r} of more; take uint8 or floats of 1 "
            "or 3 channels, or give the others augment= of their own"
        )
    if program.makes_noise and any(field.dtype == "uint8" for field in pictures):
        raise UsageError(
            'augment: expected RandomErasing(value="random") with a dtype of floats, got "uint8": its values are normal'
        )


def check_lists(columns: FieldColumns, *, refused: Mapping[str, bool]) -> None:
    """Raise UsageError for an argument that fields of several images a sample do not go with.

    `refused`: whether each argument is given, by name.
    """
    for name, field, _ in columns.lists:
        given = [argument for argument, is_given in refused.items() if is_given]
        if "map" in given and field.count is not None:
            given.remove("map")
        if given:
            ways = {"map": "pass count=", "view": "use a view of one fixed size"}
            advice = ways.get(given[0], "leave it out")
            raise UsageError(
                f"{given[0]}: expected its default beside field {name!r} of several images a sample, got another; "
                f"{advice}"
            )


def check_views(images: Sequence[tuple[str, Spatial, str]], view: object, program: Program) -> None:
    """Raise UsageError if the fields of pixels cannot take `program`, the Loader's view."""
    if program.copies is not None:
        raise UsageError(
            f"view: expected one window a sample, got {view!r}, which cuts {program.copies}; give it to a field: "
            "Image(view=…)"
        )
    if view is not None and all(isinstance(field, Image) and field.view is not None for _, field, _ in images):
        raise UsageError(
            f"view: expected a field of pixels that takes it, got views of their own for all, got {view!r}; leave it "
            "out, or leave out a field's"
        )
    for name, field, _ in images:
        if not isinstance(field, Image) or field.copies is None or field.view is not None:
            continue
        if program.output_size is None or program.drawn_per_step:
            raise UsageError(
                f"field {name!r}: expected a view of one fixed size for its {field.copies} copies, got view={view!r} "
                "of the Loader; give the field its own, as in Image(view=RandomResizedCrop(224), copies=2)"
            )


def check_last_batch(plan: EpochPlan, map: SampleMap | None) -> None:
    """Refuse `map` if a rank may get no sample, since the rank could not know the fields that `map` returns."""
    if map is not None and plan.empty_parts:
        raise UsageError(
            f"map: expected a sample for each of the {plan.world_size} ranks in every batch of an epoch, got "
            f"{plan.empty_parts} parts without any; use remainder='drop' or 'wrap'"
        )


def check_device_decoding(
    columns: FieldColumns,
    plan: EpochPlan,
    size: tuple[int, int] | None,
    *,
    output: str,
    on_host: Mapping[str, object],
    augments_on_host: bool,
) -> None:
    """Raise UsageError unless a device can decode the Loader's images.

    `size`: the view's, None if it leaves the size open. `on_host`: arguments that need pixels on the host, by name.
    """
    advice = "leave out decode"
    if output != "torch":
        raise UsageError(f"decode='device': expected output='torch' with it, got {output!r}; {advice}")
    for name, value in on_host.items():
        if value is not None:
            raise UsageError(f"decode='device': expected no {name}= with it, as pixels are on the device; {advice}")
    if augments_on_host:
        raise UsageError(
            "decode='device': expected augmentations that run on the device, got some that run on the CPU; pass "
            f"augment_on='device' with device=, or {advice}"
        )
    if len(columns.images) != 1 or columns.has_places:
        names = ", ".join(repr(name) for name, _, _ in columns.images)
        raise UsageError(
            f"decode='device': expected one field of images and no boxes, keypoints or masks, got {names or 'none'}; "
            f"{advice}"
        )
    name, field, _ = columns.images[0]
    plain = Image(source=field.source, dtype="uint8", channels_last=getattr(field, "channels_last", True))
    if (
        not isinstance(field, Image)
        or replace(field, dct_scaling=None, augment=None, dtype="uint8", normalize=None) != plain
    ):
        raise UsageError(
            f"decode='device': field {name!r}: expected an Image of mode RGB with the triangle filter, and no view=, "
            f"copies=, exif= or shrink_to= of its own, got {field!r}; {advice}"
        )
    if size is None or not isinstance(plan, UniformPlan):
        raise UsageError(
            "decode='device': expected images of one fixed size, such as view=hr.RandomResizedCrop(224), without "
            f"buckets=, Budget and RandomScale; {advice}"
        )


def place_fields(
    device: str | torch.device, output: str, fields: Mapping[str, Field], *, host_floats: bool, decodes: bool
) -> Placement | None:
    """Return the placement of fields on `device`; None on the CPU, unless it decodes as a device would.

    `host_floats`: a stage on the host needs floats.
    """
    if output != "torch":
        raise UsageError(f"device: expected output='torch' with it, got output={output!r}; leave device out")
    from headrace.device import place

    placement = place(device, fields, host_floats=host_floats, decodes=decodes)
    return None if placement.device.type == "cpu" and not decodes else placement


def need_torch(what: str, *, instead: str = "") -> None:
    try:
        import torch  # noqa: F401  # asked for here, so that the error comes before any work
    except ImportError as error:
        raise UsageError(f"{what} needs PyTorch: pip install torch{instead}") from error
