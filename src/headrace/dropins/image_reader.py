"""`decode_image`, `read_images` and `ImageReader`: native decode, crop and resize for a Dataset."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace._core import Code, Limits
from headrace.data import TooLargeError
from headrace.dropins.image_source import (
    ImageSource,
    at_item,
    content_of,
    error_for,
    origin_of,
    path_of,
    read_path,
)
from headrace.dropins.random_sources import draw_keys
from headrace.errors import HeadraceError, UsageError
from headrace.fields import DTYPES, DType, Filter, Image, Mode, Normalize
from headrace.foreign_arguments import KnownArguments, known_arguments
from headrace.loader import Output, PythonThreads, decode_picture, image_options
from headrace.system import default_threads
from headrace.views import View, compile_view

if TYPE_CHECKING:
    from headrace.dropins.random_sources import RandomSource

__all__ = ["ImageReader", "decode_image", "read_images"]


def decode_all(decode: Callable[[int], NDArray[Any]], count: int, threads: int | None) -> list[NDArray[Any]]:
    """Decode each item in parallel and return the images in order. Raises the first error, with the item's index."""
    if threads is None:
        # 1 in a DataLoader's worker process: the other workers use the other cores.
        worker = sys.modules.get("torch.utils.data._utils.worker")
        threads = 1 if worker is not None and worker._worker_info is not None else default_threads()
    if type(threads) is not int or threads < 1:
        raise UsageError(f"threads: expected an int of at least 1, got {threads!r}")
    threads = min(threads, count)

    def one(item: int) -> NDArray[Any]:
        try:
            return decode(item)
        except HeadraceError as error:
            raise at_item(error, item) from error

    if threads <= 1:
        return [one(item) for item in range(count)]
    pool = PythonThreads(threads)
    try:
        return pool.each(one, range(count))
    finally:
        pool.join()


def stack(images: Sequence[NDArray[Any]], sources: Sequence[ImageSource]) -> NDArray[Any]:
    """Stack images of one shape, [N, …]. Raises UsageError if two shapes differ, or without images."""
    if not images:
        raise UsageError("expected at least one image, got an empty list: its batch would have no size")
    other = next((item for item, image in enumerate(images) if image.shape != images[0].shape), None)
    if other is not None:
        first, second = (
            f"{images[item].shape} (sources[{item}], {origin_of(sources[item])[0]!r})" for item in (0, other)
        )
        raise UsageError(
            f"expected images of one size, got {first} and {second}; give a view that fixes the size, such as "
            "Resize((height, width)), or take them one by one with decode_image"
        )
    return np.stack(images)


@dataclass(frozen=True, kw_only=True)
class ImageReader(KnownArguments):
    """Decoder that also crops by a view and resizes, in the calling thread and without the GIL.

        reader = ImageReader(view=RandomResizedCrop(224, flip=0.5))
        image = reader(path)

    Frozen, picklable, and safe to share between threads and with forked processes: buffers belong to the decoding
    thread, not to the reader. The options are those of `headrace.Image` and of `Loader(view=…)`, except:

    `output`  "torch" tensors of shape [C, H, W], or "numpy" arrays of shape [H, W, C]
    `channels_last`  torch: memory in the order H, W, C under the same shape. Default False, which `default_collate`
        copies fastest; its batch is contiguous NCHW in either case. numpy: False returns [C, H, W]
    `limits`  bounds on one image (pixels, JPEG scans, bytes), beyond which a LimitError is raised

    Raises UsageError for incompatible options.
    """

    view: View | Sequence[View] | None = None
    dtype: DType = "uint8"
    normalize: Normalize | None = None
    mode: Mode = "RGB"
    filter: Filter = "triangle"
    channels_last: bool | None = None
    dct_scaling: bool | None = None
    exif: bool = True
    output: Output = "torch"
    limits: Limits | None = None

    # Compiled from the options, never pickled.
    _image: Image = field(init=False, repr=False, compare=False)
    _limits: Limits = field(init=False, repr=False, compare=False)
    _decoder: _core.ImageDecoder = field(init=False, repr=False, compare=False)
    _draws: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.output not in ("torch", "numpy"):
            raise UsageError(f"output: expected 'torch' or 'numpy', got {self.output!r}")
        if self.output == "numpy" and self.dtype == "bfloat16":
            raise UsageError("dtype: numpy has no bfloat16; use output='torch' or dtype='float32'")
        if self.output == "torch":
            try:
                import torch  # noqa: F401  # asked for here, so that the error comes before any work
            except ImportError as error:
                raise UsageError("output='torch' needs PyTorch: pip install torch; or pass output='numpy'") from error
        if self.dtype not in DTYPES:  # uint16: Loader only
            raise UsageError(f"expected dtype to be one of {DTYPES}, got {self.dtype!r}; Loader has others of Image")
        image = Image(
            dtype=self.dtype,
            normalize=self.normalize,
            mode=self.mode,
            filter=self.filter,
            channels_last=self.output == "numpy" if self.channels_last is None else self.channels_last,
            dct_scaling=self.dct_scaling,
            exif=self.exif,
        )
        program = compile_view(self.view)
        if program.copies is not None:
            raise UsageError(
                f"view: expected one window an image, got {self.view!r}, which cuts {program.copies}; a Loader's "
                "Image(view=…) takes it"
            )
        limits = Limits() if self.limits is None else self.limits
        options = _core.ImageOptions(**image_options(image, program.fill))
        decoder = _core.ImageDecoder(program.ops, options, limits=limits)
        if isinstance(self.view, list):  # so that it cannot change after compilation
            object.__setattr__(self, "view", tuple(self.view))
        derived = {"_image": image, "_limits": limits, "_decoder": decoder, "_draws": _core.is_random(program.ops)}
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {option.name: getattr(self, option.name) for option in fields(self) if option.init}

    def __setstate__(self, options: dict[str, Any]) -> None:
        for name, value in options.items():
            object.__setattr__(self, name, value)
        self.__post_init__()

    def __call__(self, source: ImageSource, *, rng: RandomSource | None = None) -> Any:
        """Read one image as a torch tensor [C, H, W] or a NumPy array [H, W, C]. See `decode_image`."""
        return self._deliver(self._decode(source, self._keys(rng, 1)[0]))

    def read_batch(
        self, sources: Iterable[ImageSource], *, rng: RandomSource | None = None, threads: int | None = None
    ) -> Any:
        """Read images of one size as a torch tensor [N, C, H, W] or a NumPy array [N, H, W, C]. See `read_images`."""
        if isinstance(sources, str | bytes | os.PathLike):
            raise UsageError(f"expected a list of image sources, got {sources!r}; decode_image takes a single one")
        items = list(sources)
        keys = self._keys(rng, len(items))
        images = decode_all(lambda item: self._decode(items[item], keys[item]), len(items), threads)
        return self._deliver(stack(images, items))

    def _keys(self, rng: RandomSource | None, count: int) -> list[int]:
        """Draw one key per image; a deterministic view leaves every generator unchanged."""
        return draw_keys(rng, self.output, count) if self._draws else [0] * count

    def _decode(self, source: ImageSource, key: int) -> NDArray[Any]:
        """Decode one image to [C, H, W] or [H, W, C], depending on `channels_last`."""
        content = None  # the core reads paths itself
        if isinstance(source, str | os.PathLike):
            outcome = self._decoder.decode_file(path_of(source), key)
        else:
            content = content_of(source, self._limits.max_file_bytes)
            outcome = self._decoder.decode_bytes(content, key)
        if isinstance(outcome, tuple) and outcome[0] == Code.DECLINED:
            data = read_path(os.fspath(source)) if content is None else bytes(content)  # type: ignore[arg-type]  # a path
            try:
                pixels = decode_picture(data, self._image, self._limits)
            except TooLargeError as error:
                raise error_for(source, Code.LIMIT, str(error)) from error
            except ValueError as error:
                raise error_for(source, Code.CORRUPT, f"{outcome[1]}, and {error}") from error
            outcome = self._decoder.decode_pixels(pixels, key)
        if isinstance(outcome, tuple):
            raise error_for(source, *outcome)
        return outcome

    def _deliver(self, array: NDArray[Any]) -> Any:
        if self.output == "numpy":
            return array
        import torch

        tensor = torch.from_numpy(array)
        if self.dtype == "bfloat16":
            tensor = tensor.view(torch.bfloat16)
        return tensor.movedim(-1, -3) if self._image.channels_last else tensor


@known_arguments("decode_image")
def decode_image(
    source: ImageSource,
    *,
    view: View | Sequence[View] | None = None,
    dtype: DType = "uint8",
    normalize: Normalize | None = None,
    mode: Mode = "RGB",
    filter: Filter = "triangle",
    channels_last: bool | None = None,
    dct_scaling: bool | None = None,
    exif: bool = True,
    rng: RandomSource | None = None,
    output: Output = "torch",
    limits: Limits | None = None,
) -> Any:
    """Decode one image, crop it by `view` and resize it: a torch tensor [C, H, W], or a NumPy array [H, W, C].

    `source` is a path (str or PathLike), the encoded bytes (any buffer), or a binary file object, read from its start.
    The core decodes JPEG and PNG, Pillow the other formats in `limits.formats`. The other options are
    `ImageReader`'s.

    `rng` seeds a random view. By default it is one draw from torch's default generator (NumPy's global generator for
    output "numpy"), as in torchvision's transforms, so `torch.manual_seed` and DataLoader's worker seeding apply. In a
    dataset or collate_fn under ThreadDataLoader the draw is from the sample's or batch's own source (see
    `sample_random`), the same with any number of threads. An int fixes the view: that of sample 0 in epoch 0 of
    `Loader(seed=rng)`. A NumPy or torch Generator is drawn from once. A deterministic view draws nothing.

    Raises DecodeError, LimitError, UnsupportedError or ViewError for the image, NotFoundError or ReadError for its
    file, UsageError for invalid arguments. Errors of a file object propagate unchanged.
    """
    reader = _reader(view, dtype, normalize, mode, filter, channels_last, dct_scaling, exif, output, limits)
    return reader(source, rng=rng)


@known_arguments("read_images")
def read_images(
    sources: Iterable[ImageSource],
    *,
    view: View | Sequence[View] | None = None,
    dtype: DType = "uint8",
    normalize: Normalize | None = None,
    mode: Mode = "RGB",
    filter: Filter = "triangle",
    channels_last: bool | None = None,
    dct_scaling: bool | None = None,
    exif: bool = True,
    rng: RandomSource | None = None,
    output: Output = "torch",
    limits: Limits | None = None,
    threads: int | None = None,
) -> Any:
    """Decode images of one size into a batch: a torch tensor [N, C, H, W], or a NumPy array [N, H, W, C].

    The result equals `decode_image` on each source in order; with an int `rng`, item k has the view of sample 0 in
    epoch k. `threads` decode in parallel; default: the available cores, divided among the ranks on the node and the
    threads of a ThreadDataLoader, and 1 in a DataLoader worker.

    Raises the errors of `decode_image`, with the item as `sources[k]`, and UsageError for images of different sizes.
    """
    reader = _reader(view, dtype, normalize, mode, filter, channels_last, dct_scaling, exif, output, limits)
    return reader.read_batch(sources, rng=rng, threads=threads)


def _reader(view: View | Sequence[View] | None, *options: Any) -> ImageReader:
    """Return a cached reader: compiling the options takes longer than the Python part of reading an image."""
    given = (tuple(view) if isinstance(view, list) else view, *options)
    try:
        hash(given)
    except TypeError:  # a list inside a view, say
        return _new_reader(*given)
    return _cached_reader(*given)


def _new_reader(*options: Any) -> ImageReader:
    return ImageReader(**dict(zip(_OPTIONS, options, strict=True)))


_OPTIONS = [option.name for option in fields(ImageReader) if option.init]
_cached_reader = lru_cache(maxsize=64)(_new_reader)
