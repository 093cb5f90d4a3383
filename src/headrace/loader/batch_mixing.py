"""`batch=` of a Loader: mixing of each batch's images and labels, on the host or later on the device."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace.augment import ONE, PAIRS, AnyMixing, DrawnMixing, Mixing, RandomChoice, choices_of, draw_mixing
from headrace.data import Dataset, HeldColumn
from headrace.errors import UsageError
from headrace.fields import Field, Image, Label
from headrace.foreign_arguments import belongs
from headrace.loader.batch_memory import BatchMemory
from headrace.loader.batch_values import BatchRows, PlainArray
from headrace.loader.decoding.pixels import image_options, parts_of
from headrace.loader.stats import StageMeter
from headrace.plan import EpochPlan, ShapedPlan, UniformPlan

Pairs = NDArray[np.int32]


@dataclass(frozen=True)
class BatchMixing:
    """Loader's `batch=`, resolved against its dataset and fields."""

    mixing: AnyMixing
    num_classes: int
    floats: Image | None
    """Image field of the batch if the core hands on bytes and the mixing makes the floats; else None."""
    on_device: bool

    @property
    def choice(self) -> Mixing:
        """First of the choices: all choices agree on fields and classes."""
        return choices_of(self.mixing)[0]

    def on_host(self, fields: Mapping[str, Field]) -> dict[str, Field]:
        """Return the fields as the core makes them."""
        chosen = dict(fields)
        if self.floats is not None:
            chosen[self.choice.field] = replace(self.floats, dtype="uint8", normalize=None)
        return chosen


def resolve_mixing(
    mixing: AnyMixing, dataset: Dataset, fields: Mapping[str, Field], *, core_floats: bool, on_device: bool
) -> BatchMixing:
    """Return the mixing of a Loader's `batch=`. Raises UsageError if it does not fit the fields or the dataset.

    `core_floats`: the core has to make the floats, for a stage before the mixing.
    """
    if not isinstance(mixing, Mixing | RandomChoice):
        raise UsageError(
            f"batch: expected hr.MixUp(…), hr.CutMix(…) or hr.RandomChoice([…]) of them, got {mixing!r}"
            f"{belongs(mixing) or '; your own function of a batch is batch_map='}"
        )
    choice = choices_of(mixing)[0]
    image = _image_field(choice, fields)
    core_floats = core_floats or on_device or image.wide or image.erases or image.dtype == "uint8"
    return BatchMixing(mixing, _class_count(choice, dataset, fields), None if core_floats else image, on_device)


def _image_field(choice: Mixing, fields: Mapping[str, Field]) -> Image:
    image = fields.get(choice.field)
    if not isinstance(image, Image):
        names = [name for name, field in fields.items() if isinstance(field, Image)]
        raise UsageError(
            f"batch: expected field= to be the name of an Image field, one of {names}, got {choice.field!r}"
        )
    if image.copy_count is not None:
        raise UsageError(
            f"batch: expected one window a sample of field {choice.field!r}, got {image.copy_count} copies, of which "
            "no two belong together; mix in the training step, or leave copies= out"
        )
    others = [name for name, field in fields.items() if name != choice.field and _has_places(field)]
    if others:
        raise UsageError(
            f"batch: expected no other field of pixels or places in them beside {choice.field!r}, which mixing would "
            f"not change, got {', '.join(map(repr, others))}; leave them out, or mix in batch_map="
        )
    return image


def _has_places(field: Field) -> bool:
    from headrace.fields import Boxes, Geometry, InstanceMasks, Keypoints, Spatial

    return isinstance(field, Spatial | Boxes | Geometry | InstanceMasks | Keypoints)


def _class_count(choice: Mixing, dataset: Dataset, fields: Mapping[str, Field]) -> int:
    label = fields.get(choice.labels)
    if not isinstance(label, Label):
        got = "none of that name" if label is None else f"{type(label).__name__}()"
        raise UsageError(
            f"batch: expected labels={choice.labels!r} to name a Label field of classes, got {got}; add "
            f"{{{choice.labels!r}: hr.Label()}}, or name another with labels="
        )
    column: Any = dataset.columns[choice.labels if label.source is None else label.source]
    values = _numbers(column)
    if values is not None and values.dtype.kind == "f":
        raise UsageError(
            f"batch: expected field {choice.labels!r} to hold classes, whole numbers from 0, got {values.dtype}; "
            "mixing of other targets is for batch_map="
        )
    names: tuple[str, ...] | None = getattr(column, "classes", None)
    if choice.num_classes is None and names is None:
        raise UsageError(
            f"batch: expected num_classes= with field {choice.labels!r}, whose column does not name its classes, got "
            "None; pass how many there are"
        )
    if choice.num_classes is not None and names is not None and choice.num_classes < len(names):
        raise UsageError(
            f"batch: expected num_classes of at least the {len(names)} classes of field {choice.labels!r}, got "
            f"{choice.num_classes}"
        )
    return choice.num_classes if choice.num_classes is not None else len(names or ())


def _numbers(column: HeldColumn) -> Any:
    """Return the column's numbers, or the labels of its texts; None for bytes, which hold integers."""
    labels = getattr(column, "labels", None)
    return getattr(column if labels is None else labels, "values", None)


def check_pairs(plan: EpochPlan, world_size: int) -> None:
    """Raise UsageError if a rank's part of a full batch cannot be cut into pairs."""
    if not isinstance(plan, UniformPlan | ShapedPlan) or plan.part_multiple % 2 == 0:
        return
    if isinstance(plan, UniformPlan) or plan.part_multiple == plan.batch_size:
        raise UsageError(
            "batch_size: expected an even number of samples per rank with batch=, since each is mixed with its "
            f"neighbour, got {plan.batch_size}"
        )
    raise UsageError(
        f"Budget: expected batches with an even number of samples per rank with batch=, since each is mixed with its "
        f"neighbour; pass rank_multiple={2 * world_size}, or a multiple of it"
    )


class Mixer:
    """Mixing of one pass's batches, in the thread that delivers them."""

    def __init__(self, mixing: BatchMixing, *, rank: int, output: str, memory: BatchMemory, level: str) -> None:
        self._mixing = mixing
        self._choice = mixing.choice
        self._rank = rank
        self._output = output
        self._memory = memory
        self._level = level
        self.meter = StageMeter()

    def mix(self, batch: dict[str, Any], rows: BatchRows) -> dict[str, Any]:
        """Return the batch with soft labels, and with mixed images unless it is a short last batch."""
        began = time.perf_counter()
        field, labels = self._choice.field, self._choice.labels
        for name in (field, labels):
            if name not in batch:
                raise UsageError(f"batch: expected map= to return field {name!r}, which is mixed, got {list(batch)}")
        image = self._image(batch[field], len(rows))
        classes = self._classes(batch[labels], rows)
        height, width = image.array.shape[2:]
        drawn = self._draw(rows, (height, width))
        mixed = batch | {labels: self._numbers(soft_labels(classes, drawn.shares, self._mixing, self._choice))}
        if self._mixing.on_device:
            mixed[PAIRS + field] = self._numbers(drawn.pairs)
        else:
            mixed[field] = self._pixels(batch[field], image, drawn.pairs)
        self.meter.add(time.perf_counter() - began, len(rows), image.array.nbytes)
        return mixed

    def _draw(self, rows: BatchRows, size: tuple[int, int]) -> DrawnMixing:
        count, plan = len(rows), rows.plan
        if not plan.whole or count == 0:
            return DrawnMixing.none(count // 2)
        # Parts of a full batch have the same size on every rank, so this is the pair's place in the global batch.
        first = self._rank * count // 2
        return draw_mixing(
            self._mixing.mixing, key=rows.key, step=plan.step, first_pair=first, pairs=count // 2, size=size
        )

    def _image(self, value: Any, count: int) -> PlainArray:
        plain = PlainArray.of(value)
        if plain is None or plain.array.ndim != 4 or len(plain.array) != count or plain.array.dtype.kind not in "iuf":
            raise UsageError(
                f"batch: expected field {self._choice.field!r} to be numbers [N, C, H, W] with batch=, got "
                f"{_described(value)} of map="
            )
        return plain

    def _classes(self, value: Any, rows: BatchRows) -> NDArray[np.int64]:
        name, most = self._choice.labels, self._mixing.num_classes - 1
        plain = PlainArray.of(value)
        if plain is None or plain.array.shape != (len(rows),) or plain.array.dtype.kind not in "iu":
            raise UsageError(
                f"batch: expected field {name!r} to be classes, whole numbers [N], got {_described(value)}; "
                "return them as they are from map="
            )
        classes = plain.array.astype(np.int64)
        odd = np.flatnonzero((classes < 0) | (classes > most))
        if len(odd):
            raise UsageError(
                f"batch: expected field {name!r} to be a class from 0 to {most}, got {classes[odd[0]]} of "
                f"{rows.name(int(odd[0]))}; correct it, or pass a greater num_classes"
            )
        return classes

    def _numbers(self, values: NDArray[Any]) -> Any:
        if self._output == "numpy":
            return values
        import torch

        return torch.from_numpy(values)

    def _pixels(self, value: Any, image: PlainArray, pairs: Pairs) -> Any:
        if self._mixing.floats is not None:
            return self._floats(image.array, self._mixing.floats, pairs)
        planes = _planes(image.array)
        if planes is None:
            image = PlainArray(np.ascontiguousarray(image.array), image.tensor)
            planes, value = _planes(image.array), image.restore()
            assert planes is not None, "it is contiguous"
        if image.array.dtype in (np.uint8, np.float32) and image.tensor in (None, "uint8", "float32"):
            _core.mix_images(planes, pairs, level=self._level)
        else:
            mix_any(image, pairs)
        return value

    def _floats(self, image: NDArray[np.uint8], field: Image, pairs: Pairs) -> Any:
        """Mix the bytes and return floats of the field's dtype, normalised once."""
        (part,) = parts_of(self._choice.field, field)
        options = image_options(field, (0,))
        planes = _planes(image)
        assert planes is not None, "the core writes it without gaps"
        block = self._memory.acquire(len(image) * part.nbytes(image.shape[2:]))
        _core.mix_to_floats(
            planes,
            pairs,
            out=block,
            dtype=field.dtype,
            subtract=options["subtract"][: field.channel_count],
            divide=options["divide"][: field.channel_count],
            level=self._level,
        )
        return part.over(block, len(image), image.shape[2:], self._output)


def soft_labels(
    classes: NDArray[np.int64], shares: NDArray[np.float64], mixing: BatchMixing, choice: Mixing
) -> NDArray[np.float32]:
    """Return float32 [N, classes]: each sample's share of its own class and its neighbour's, smoothed.

    A last sample without a neighbour has its own class alone.
    """
    rest = choice.label_smoothing / mixing.num_classes
    whole = 1.0 - choice.label_smoothing
    soft = np.full((len(classes), mixing.num_classes), rest, np.float32)
    own, partners = np.ones(len(classes)), classes.copy()
    paired = 2 * len(shares)
    own[:paired] = shares.repeat(2)
    partners[:paired] = classes[:paired].reshape(-1, 2)[:, ::-1].reshape(-1)
    rows = np.arange(len(classes))
    soft[rows, partners] = rest + whole * (1.0 - own)
    soft[rows, classes] = np.where(partners == classes, rest + whole, rest + whole * own)
    return soft


def mix_any(image: PlainArray, pairs: Pairs) -> None:
    """Mix images [N, C, H, W] of any type in place. Integers round half up; 16-bit floats are blended as float32."""
    narrow = image.tensor == "bfloat16"
    for (one, other), (weight, left, top, right, bottom) in zip(
        image.array[: 2 * len(pairs)].reshape(len(pairs), 2, *image.array.shape[1:]), pairs.tolist(), strict=True
    ):
        if weight != ONE:
            a, b = (_wide(each, narrow) for each in (one, other))
            one[:], other[:] = (_narrow(_blend(x, y, weight), one.dtype, narrow) for x, y in ((a, b), (b, a)))
        box = (slice(None), slice(top, bottom), slice(left, right))
        one[box], other[box] = other[box].copy(), one[box].copy()


def _blend(own: NDArray[Any], other: NDArray[Any], weight: int) -> NDArray[Any]:
    if own.dtype.kind == "f":
        floats: NDArray[Any] = own * own.dtype.type(weight / ONE) + other * own.dtype.type(1 - weight / ONE)
        return floats
    whole: NDArray[Any] = (own * weight + other * (ONE - weight) + ONE // 2) // ONE
    return whole


def _wide(values: NDArray[Any], narrow: bool) -> NDArray[Any]:
    if narrow:  # a bfloat16 is the upper 16 bits of a float32
        return (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if values.dtype.kind == "f":
        return values.astype(np.float64 if values.dtype == np.float64 else np.float32)
    return values.astype(np.int64)


def _narrow(values: NDArray[Any], dtype: np.dtype[Any], narrow: bool) -> NDArray[Any]:
    if not narrow:
        return values.astype(dtype)
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16).view(dtype)


def _planes(images: NDArray[Any]) -> NDArray[Any] | None:
    """Return images [N, C, H, W] in the core's layout, [N, planes, H, W, values], over the same memory."""
    count, channels, height, width = images.shape
    last = images.transpose(0, 2, 3, 1)
    shaped: NDArray[Any] | None = None
    if last.flags.c_contiguous:
        shaped = last.reshape(count, 1, height, width, channels)
    elif images.flags.c_contiguous:
        shaped = images.reshape(count, channels, height, width, 1)
    return shaped


def _described(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is None:
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')} {list(shape)}"
