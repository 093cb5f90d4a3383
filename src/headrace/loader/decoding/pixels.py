"""Fields of pixels: the core's options for each field, and decoding with libraries of files that the core declines."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace._core import Limits
from headrace.augment import compile_augment
from headrace.data import MOST_PIXEL_BYTES, ArrayColumn, array_files, open_picture, picture_size
from headrace.errors import UsageError
from headrace.fields import MOST_FINITE, Depth, Image, Mask, Normals, Spatial
from headrace.loader.batch_memory import tensor_over
from headrace.loader.decoding import pillow
from headrace.views import Program, compile_view

VALID = "_valid"
"""Suffix of the name of a depth field's validity mask."""

_NUMPY = {
    "bool": np.bool_, "uint8": np.uint8, "uint16": np.uint16, "int16": np.int16, "int32": np.int32, "int64": np.int64,
    "float32": np.float32, "float16": np.float16, "bfloat16": np.uint16,
}  # fmt: skip

_NO_PLACE = np.iinfo(np.int64).min
"""New value of a mask's values that the batch cannot hold (core/dense/mask_target.hpp)."""

Options = dict[str, Any]

_PIXELS_VERSION = 4
"""Raise it with any change to the pixels that the same arguments make from the same file."""


def pixel_versions() -> str:
    """Return what determines the bits of pixels, apart from files and arguments: part of states and of caches."""
    return f"{_core.codec_versions()}, pixels {_PIXELS_VERSION}"


@dataclass(frozen=True)
class PixelPart:
    """Array of the batch: [N, H, W] without channels, else [N, channels, H, W] or [N, copies, channels, H, W]."""

    name: str
    dtype: str
    channels: int | None
    channels_last: bool = False
    copies: int | None = None
    own_size: tuple[int, int] | None = None
    """(height, width) of the field's own view; None for the batch's size."""
    scale: int = 1
    """Factor of the batch's size."""

    @property
    def numpy_dtype(self) -> type[np.generic]:
        """Numpy type; for bfloat16, which numpy lacks, integers of the same bits."""
        return _NUMPY[self.dtype]

    def size_in(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return (height, width) of the part in a batch of this size."""
        return self.own_size or (self.scale * size[0], self.scale * size[1])

    def nbytes(self, size: tuple[int, int]) -> int:
        """Return the bytes of one sample."""
        return math.prod(self.shape(1, size)) * np.dtype(self.numpy_dtype).itemsize

    def shape(self, count: int, size: tuple[int, int]) -> tuple[int, ...]:
        """Return the shape in memory order."""
        height, width = self.size_in(size)
        outer = (count,) if self.copies is None else (count, self.copies)
        if self.channels is None:
            return *outer, height, width
        return (*outer, height, width, self.channels) if self.channels_last else (*outer, self.channels, height, width)

    def over(self, memory: NDArray[np.uint8], count: int, size: tuple[int, int], output: str) -> Any:
        """Return the part over the start of `memory`, which returns to its pool with the last reference to it."""
        shape = self.shape(count, size)
        values = math.prod(shape)
        if output == "numpy":
            array = memory.view(self.numpy_dtype)[:values].reshape(shape)
            return np.moveaxis(array, -1, -3) if self.channels_last else array
        import torch

        tensor = tensor_over(memory).view(getattr(torch, self.dtype))[:values].view(shape)
        return tensor.movedim(-1, -3) if self.channels_last else tensor


def parts_of(name: str, field: Spatial) -> list[PixelPart]:
    """Return the arrays that the core writes for a field, its values first."""
    if isinstance(field, Image):
        own_size = None if field.view is None else compile_view(field.view).output_size
        layout = field.channel_count, field.channels_last, field.copy_count
        return [PixelPart(name, field.dtype, *layout, own_size, field.scale)]
    if isinstance(field, Mask):
        return [PixelPart(name, field.dtype, None)]
    if isinstance(field, Normals):
        return [PixelPart(name, field.dtype, 3, channels_last=True)]
    valid = [PixelPart(name + VALID, "bool", 1)] if field.valid else []
    return [PixelPart(name, field.dtype, 1), *valid]


Images = Sequence[tuple[str, Spatial, str]]
"""Fields of pixels as (name, field, column)."""


def all_parts(images: Images) -> list[PixelPart]:
    """Return the arrays that the core writes for fields, in their order."""
    return [part for name, field, _ in images for part in parts_of(name, field)]


def own_program(field: Spatial, program: Program) -> Program | None:
    """Return the view that a field draws for itself; None if the field follows `program`, the Loader's view."""
    if not isinstance(field, Image) or not field.draws_view:
        return None
    return program if field.view is None else compile_view(field.view)


def decoded_with(images: Images) -> list[int]:
    """Return, for each field, the first field that shares its decoded image; -1 for a field that is decoded alone.

    Pictures of one column share the decoded image if one of them has copies, if their own views cut several windows, or
    if they are resampled alike: to bytes and to floats.
    """
    shared: dict[tuple[object, ...], list[int]] = {}
    for at, (_, field, column) in enumerate(images):
        if isinstance(field, Image) and not field.wide:
            small = None if field.shrink_to is None else (field.shrink_to, field.filter, field.dct_scaling)
            shared.setdefault((column, field.exif, field.background, field.channel_count, small), []).append(at)
    found = [-1] * len(images)
    for members in shared.values():
        fields = [field for _, field, _ in (images[at] for at in members) if isinstance(field, Image)]
        has_copies = any((field.copy_count or 1) > 1 for field in fields)
        are_alike = len({(field.filter, field.dct_scaling) for field in fields}) == 1
        if has_copies or (len(members) > 1 and (are_alike or any(field.draws_view for field in fields))):
            for at in members:
                found[at] = members[0]
    return found


def name_hash(name: str) -> int:
    """Return the key of a field's own draws, within the epoch's key (core/batch/job.hpp)."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def all_options(images: Images, program: Program) -> list[Options]:
    """Return the core's arguments for each field of a Loader with view `program`."""
    options = []
    for (name, field, _), first in zip(images, decoded_with(images), strict=True):
        own = own_program(field, program)
        options.append(core_options(field, (program if own is None else own).fill) | {"name_hash": name_hash(name)})
        if own is not None:
            assert isinstance(field, Image), "others follow the Loader's view"
            options[-1] |= {"view": own.ops, "copies": field.copy_count or 1}
        options[-1]["decoded_with"] = first
        augmented = compile_augment(name, field.augment) if isinstance(field, Image) else None
        options[-1]["augment"] = None if augmented is None else augmented.native
    return options


def core_options(field: Spatial, fill: tuple[int, ...]) -> Options:
    """Return the core's arguments for a field, the same for every batch. Pictures take the view's `fill`."""
    if isinstance(field, Image):
        options = _wide_options(field, fill) if field.wide else image_options(field, fill)
        return options | ({} if field.scale == 1 else {"scale": field.scale})
    if isinstance(field, Mask):
        mask = (np.dtype(field.dtype).itemsize, field.ignore, _mask_table(field))
        return {**_NEAREST, "filter": field.filter, "mask": mask}
    if isinstance(field, Normals):
        half = {"subtract": [127.5] * 3, "divide": [127.5] * 3}
        return {
            **_NEAREST,
            **half,
            "orient": field.exif,
            "channels": 3,
            "dtype": field.dtype,
            "normals": field.y == "up",
        }
    return {**_NEAREST, "filter": field.filter, "depth": _depth_numbers(field)}


_DCT_MARGINS = {None: 4.0, True: 1.0, False: 0.0}
"""Minimum size of a decoded window relative to its output, by `dct_scaling` (core/batch/views.hpp).

At 4, 99.9 % of values are within 2 levels of the full decode; at 3 within 4, at 2 within 6, at 1 within 19
."""


def image_options(image: Image, fill: tuple[int, ...]) -> Options:
    """Return the core's arguments for a picture (core/resample/target.hpp)."""
    subtract, divide = [0.0, 0.0, 0.0], [255.0, 255.0, 255.0]
    if image.normalize is not None:
        repeats = 3 // image.channel_count  # the core takes three numbers for grey, too
        subtract = [255 * mean for mean in image.normalize.mean] * repeats
        divide = [255 * std for std in image.normalize.std] * repeats
    return {
        "channels": image.channel_count,
        "dtype": image.dtype,
        "planar": not image.channels_last,
        "subtract": subtract,
        "divide": divide,
        "fill": list(fill) * 3 if len(fill) == 1 else list(fill),
        "filter": image.filter,
        "dct_margin": _DCT_MARGINS[image.dct_scaling],
        "orient": image.exif,
        "background": image.background,
        "shrink_to": image.shrink_to or 0,
    }


def _wide_options(image: Image, fill: tuple[int, ...]) -> Options:
    """Return the core's arguments for a picture of more than 8 bits (core/dense/wide_sampler.hpp)."""
    count, normalize = image.channel_count, image.normalize
    if len(fill) not in (1, count):
        raise UsageError(
            f"view: expected fill= to be one number, or one for each of the {count} channels of an image, got {fill}"
        )
    shares = [each / 255 for each in (fill * count if len(fill) == 1 else fill)]
    mean = [0.0] * count if normalize is None else [float(each) for each in normalize.mean]
    std = [1.0] * count if normalize is None else [float(each) for each in normalize.std]
    plain = image_options(Image(filter=image.filter, channels_last=image.channels_last, exif=image.exif), (0,))
    return plain | {"dtype": image.dtype, "wide": (mean, std, shares)}


_NEAREST = image_options(Image(mode="L", filter="nearest", dct_scaling=False), (0,))
"""Options that the core requires for every field; most matter only to pictures."""


def _mask_table(field: Mask) -> NDArray[np.int64]:
    """Return int64[65536]: the new value of each possible mask value."""
    most = np.iinfo(field.dtype).max
    table = np.arange(1 << 16)
    table[table > most] = _NO_PLACE
    if isinstance(field.remap, Mapping):
        for old, new in field.remap.items():
            table[old] = new
    elif isinstance(field.remap, Sequence):
        table[:] = _NO_PLACE
        table[: len(field.remap)] = field.remap
    return table


def _depth_numbers(field: Depth) -> tuple[Any, ...]:
    """Return the tuple that core/bindings/image_options.hpp expects."""
    # Values beyond the batch's dtype would be infinite, hence invalid; normalised values are small.
    beyond = math.inf if field.normalize is not None else math.nextafter(MOST_FINITE[field.dtype], math.inf)
    near = -beyond if field.near is None else max(field.near, -beyond)
    far = beyond if field.far is None else min(field.far, beyond)
    quantiles = None
    if field.normalize is not None:
        q = field.normalize
        quantiles = (q.low, q.high, *q.range, q.clip)
    invalid = float(np.float32(field.invalid))  # as in a file of floats, such as -9999.9
    return field.dtype, field.scale, invalid, near, far, quantiles


def decode_declined(data: bytes, field: Spatial, limits: Limits) -> NDArray[np.generic]:
    """Decode to [H, W, C] of uint8, uint16 or float32, as in the file; to uint8 for an Image of bytes.

    A wide Image gets all channels of the file. The core checks that the field accepts these values. Raises ValueError
    (with the expected content) for undecodable data, TooLargeError beyond `limits`, and UsageError if a library is not
    installed.
    """
    if isinstance(field, Image) and not field.wide:
        if array_files.holds_array(data):
            return _picture(array_files.read_array(data, limits))
        return pillow.decode_picture(data, field, limits)
    if isinstance(field, Image):
        count = field.channel_count
        if array_files.holds_array(data):
            return _bands(array_files.read_array(data, limits, channels=count), count)
        if array_files.is_tiff(data) and "TIFF" in limits.formats and not array_files.is_byte_tiff(data, limits):
            return _bands(array_files.read_tiff(data, limits), count)
        return pillow.read_colors(data, field, limits)
    values = (
        array_files.read_array(data, limits)
        if array_files.holds_array(data)
        else pillow.read_picture(data, field, limits)
    )
    return _core_layout(values, channels=3 if isinstance(field, Normals) else 1, whole=isinstance(field, Mask))


def decode_bytes(data: bytes, field: Spatial, limits: Limits) -> int:
    """Return the upper bound of the memory that a library takes to decode this image, from the size in its header."""
    width, height = declined_size(data, field, limits)
    return min(width * height * MOST_PIXEL_BYTES, limits.max_decode_bytes)


def declined_size(data: bytes, field: Spatial, limits: Limits) -> tuple[int, int]:
    """Return (width, height) from the header; (0, 0) if no header can be read within `limits`."""
    wide = isinstance(field, Image) and field.wide
    if array_files.holds_array(data):
        return array_files.array_size(data, field.channel_count if isinstance(field, Image) and wide else None)
    found = picture_size(data, exif=field.exif, limits=limits)
    by_bands = wide and found == (0, 0) and array_files.is_tiff(data) and "TIFF" in limits.formats
    return array_files.tiff_size(data) if by_bands else found


def is_narrowed(data: bytes, field: Spatial, limits: Limits) -> bool:
    """Return True if a library reduces more than 8 bits to 8, because the field holds bytes."""
    if not isinstance(field, Image) or field.wide:
        return False
    return array_files.is_tiff(data) and not array_files.is_byte_tiff(data, limits)


def has_varying_alpha(data: bytes, limits: Limits) -> bool:
    """Return True if the image is transparent anywhere, which a picture of 8 bits without background loses."""
    try:
        with open_picture(data, limits) as opened:
            opened.load()
            if not pillow.is_transparent(opened) or opened.mode.startswith("I"):
                return False
            return bool((np.asarray(opened.convert("RGBA"))[..., 3] < 255).any())
    except MemoryError:
        raise
    except Exception:  # Pillow's plugins raise anything; decoding has its own errors
        return False


_PICTURE = "an image of uint8, [H, W], [H, W, 3] or [3, H, W]"


def expect_pixels(name: str, field: Spatial, column: ArrayColumn) -> None:
    """Raise UsageError for an array column whose rows are no images of the field."""
    dtype, shape = column.dtype, column.row_shape
    has_channels = len(shape) == 2 or (len(shape) == 3 and {shape[0], shape[2]} & {1, 3})
    if isinstance(field, Image) and not field.wide and (dtype != np.uint8 or not has_channels):
        raise UsageError(
            f"field {name!r}: expected {_PICTURE}, got rows of {dtype} {list(shape)}. Convert them to uint8, or read "
            f"them with Image(dtype='float32', channels=…)"
        )
    if len(shape) not in (2, 3) or dtype.kind not in "buif":
        raise UsageError(f"field {name!r}: expected images [H, W] or [H, W, C], got rows of {dtype} {list(shape)}")


def _picture(values: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return the pixels of a picture of 8 bits as [H, W, C]. Raises ValueError for any other array."""
    if values.dtype != np.uint8:
        raise ValueError(f"expected {_PICTURE}, got an array of {values.dtype}; name its type with Image(dtype=…)")
    return _core_layout(values, channels=3 if values.ndim == 3 and values.shape[0] == 3 else 1, whole=True)


def _bands(values: NDArray[np.generic], count: int) -> NDArray[np.generic]:
    """Return an array's own channels. Raises ValueError unless there are `count` of them."""
    if values.ndim == 2:
        values = values[:, :, None]
    elif values.ndim == 3 and values.shape[2] != count and values.shape[0] == count:
        values = np.moveaxis(values, 0, -1)
    if values.ndim != 3 or values.shape[2] != count or 0 in values.shape:
        raise ValueError(
            f"expected an array [H, W, {count}] or [{count}, H, W], got {list(values.shape)}; name as many as it has "
            "with channels="
        )
    if values.dtype.kind == "b":
        values = values.astype(np.uint8) * np.uint8(255)
    if values.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(values, dtype=np.float32)
    if values.dtype.kind == "u" and values.itemsize <= 2:
        return np.ascontiguousarray(values.astype(values.dtype.newbyteorder("="), copy=False))
    raise ValueError(
        f"expected an image of uint8, uint16 or floats, got an array of {values.dtype}; save it as one of these"
    )


def _core_layout(values: NDArray[np.generic], *, channels: int, whole: bool) -> NDArray[np.generic]:
    """Return [H, W, C] of a type that the core accepts, from [H, W], [H, W, C] or [C, H, W].

    `whole` numbers are identifiers, such as classes, and must not change.
    """
    if array_files.is_planar(values.shape, channels):
        values = np.moveaxis(values, 0, -1)
    if values.ndim == 2:
        values = values[:, :, None]
    if values.ndim != 3 or values.shape[2] not in (1, 3) or 0 in values.shape:
        raise ValueError(f"expected an array [H, W] or [H, W, {channels}], got {list(values.shape)}")
    if values.dtype in (np.uint8, np.uint16):
        return np.ascontiguousarray(values.astype(values.dtype.newbyteorder("="), copy=False))
    if values.dtype.kind not in "iufb":
        raise ValueError(f"expected numbers, got an array of {values.dtype}")
    if whole:
        low, high = values.min(), values.max()
        if values.dtype.kind == "f" or low < 0 or high > np.iinfo(np.uint16).max:
            raise ValueError(
                f"expected a mask of whole numbers from 0 to 65535, got {values.dtype} from {low} to {high}"
            )
        return np.ascontiguousarray(values, dtype=np.uint16)
    with np.errstate(over="ignore"):  # values beyond float32 become infinite, hence invalid
        return np.ascontiguousarray(values, dtype=np.float32)
