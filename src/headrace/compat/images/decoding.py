"""`decode_image`, `read_images`, `ImageReader`: the core's decode, crop and resize for a `Dataset` of one's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from headrace._core import Limits
from headrace.dropins.image_reader import ImageReader
from headrace.dropins.image_source import ImageSource
from headrace.fields import DType, Filter, Mode, Normalize
from headrace.loader import Output
from headrace.views.views import View

if TYPE_CHECKING:
    from headrace.compat.images.view_keys import RandomSource

__all__ = ["ImageReader", "decode_image", "read_images"]


def decode_image(
    source: ImageSource,
    *,
    view: View | Sequence[View] | None = None,
    dtype: DType = "uint8",
    normalize: Normalize | None = None,
    mode: Mode = "RGB",
    filter: Filter = "triangle",
    channels_last: bool | None = None,
    dct_scaling: bool = True,
    exif: bool = False,
    rng: RandomSource | None = None,
    output: Output = "torch",
    limits: Limits | None = None,
) -> Any:
    """One image, decoded, cut by `view` and resized: a torch tensor [C, H, W], or a numpy array [H, W, C].

    `source` is a path (str or PathLike), the encoded bytes (anything with a buffer), or a binary file object, which is
    read from its start. JPEG and PNG are decoded by the core, the other formats of `limits.formats` by Pillow. Further
    options are those of `ImageReader`.

    `rng` decides what a random view draws. Without it: one draw from torch's default generator (from numpy's global
    one for output "numpy"), as torchvision's transforms do, so `torch.manual_seed` and DataLoader's seeding of its
    workers hold; in a dataset or collate_fn under ThreadDataLoader, one draw of that sample's or batch's own (see
    `sample_random`), the same at any number of threads. An int gives the same view at every call: that of sample 0 in
    epoch 0 of `Loader(seed=rng)`. A numpy or torch Generator gives one draw. A view without randomness draws nothing.

    Raises DecodeError, LimitError, UnsupportedError or ViewError for what is wrong with the image, NotFoundError or
    ReadError for what is wrong with its file, UsageError for what is wrong with the call. A file object's own errors
    pass unchanged.
    """
    reader = _reader(view, dtype, normalize, mode, filter, channels_last, dct_scaling, exif, output, limits)
    return reader(source, rng=rng)


def read_images(
    sources: Iterable[ImageSource],
    *,
    view: View | Sequence[View] | None = None,
    dtype: DType = "uint8",
    normalize: Normalize | None = None,
    mode: Mode = "RGB",
    filter: Filter = "triangle",
    channels_last: bool | None = None,
    dct_scaling: bool = True,
    exif: bool = False,
    rng: RandomSource | None = None,
    output: Output = "torch",
    limits: Limits | None = None,
    threads: int | None = None,
) -> Any:
    """Images of one size in one batch, in order: a torch tensor [N, C, H, W], or a numpy array [N, H, W, C].

    Item k is what `decode_image` gives for `sources[k]` when called for one after another; from an int `rng`, item k
    has the view of sample 0 in epoch k. `threads` decode side by side; default: the cores available, shared by the
    ranks of the node and the threads of a ThreadDataLoader, and 1 in a worker of a DataLoader.

    Raises what `decode_image` raises, naming the item as `sources[k]`; UsageError for images of different sizes.
    """
    reader = _reader(view, dtype, normalize, mode, filter, channels_last, dct_scaling, exif, output, limits)
    return reader.read_batch(sources, rng=rng, threads=threads)


def _reader(view: View | Sequence[View] | None, *options: Any) -> ImageReader:
    """The reader with these options; compiling one takes longer than an image's own Python."""
    given = (tuple(view) if isinstance(view, list) else view, *options)
    try:
        hash(given)
    except TypeError:  # a list inside a view, say
        return _new_reader(*given)
    return _cached_reader(*given)


def _new_reader(
    view: View | Sequence[View] | None,
    dtype: DType,
    normalize: Normalize | None,
    mode: Mode,
    filter: Filter,
    channels_last: bool | None,
    dct_scaling: bool,
    exif: bool,
    output: Output,
    limits: Limits | None,
) -> ImageReader:
    return ImageReader(
        view=view,
        dtype=dtype,
        normalize=normalize,
        mode=mode,
        filter=filter,
        channels_last=channels_last,
        dct_scaling=dct_scaling,
        exif=exif,
        output=output,
        limits=limits,
    )


_cached_reader = lru_cache(maxsize=64)(_new_reader)
