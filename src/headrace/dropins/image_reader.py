"""`ImageReader`: the core's decode, crop and resize, compiled once and called for each image."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from numpy.typing import NDArray

from headrace import _core
from headrace._core import Limits
from headrace.compat.images.batch import decode_all, stack
from headrace.compat.images.errors import CORRUPT, LIMIT, error_for
from headrace.compat.images.view_keys import draw_keys
from headrace.data.pillow_images import TooLargeError
from headrace.dropins.image_source import ImageSource, content_of, path_of, read_path
from headrace.errors import UsageError
from headrace.feed import pillow
from headrace.fields import DTYPES, DType, Filter, Image, Mode, Normalize
from headrace.loader import Output
from headrace.loader.assembly import DECLINED
from headrace.loader.decoding.pixels import image_options
from headrace.views.views import View, compile_view

if TYPE_CHECKING:
    from headrace.compat.images.view_keys import RandomSource

Outcome: TypeAlias = NDArray[Any] | tuple[int, str]
"""The core's: an image, or the code and the text of what is wrong with it."""


@dataclass(frozen=True, kw_only=True)
class ImageReader:
    """Decodes an image, cuts it by its view and resizes it, in the thread that calls and without the GIL.

        reader = ImageReader(view=RandomResizedCrop(224, flip=0.5))
        image = reader(path)

    Frozen, picklable, and safe to share between threads and with forked processes: buffers belong to the thread that
    decodes, not to the reader. The options are those of `headrace.Image` and of `Loader(view=…)`, but for these:

    `output`  "torch" tensors of shape [C, H, W], or "numpy" arrays of shape [H, W, C]
    `channels_last`  torch: memory in the order H, W, C under the same shape. Default False, which `default_collate`
        copies quickest; the batch that it makes is contiguous NCHW in either case. numpy: False gives [C, H, W]
    `limits`  what one image may cost (pixels, JPEG scans, bytes); beyond them it is a LimitError

    Raises UsageError for options that do not fit each other.
    """

    view: View | Sequence[View] | None = None
    dtype: DType = "uint8"
    normalize: Normalize | None = None
    mode: Mode = "RGB"
    filter: Filter = "triangle"
    channels_last: bool | None = None
    dct_scaling: bool = True
    exif: bool = False
    output: Output = "torch"
    limits: Limits | None = None

    # Compiled from the options, and never pickled.
    _image: Image = field(init=False, repr=False, compare=False)
    _limits: Limits = field(init=False, repr=False, compare=False)
    _decoder: _core.ImageDecoder = field(init=False, repr=False, compare=False)
    _draws: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_output(self.output, self.dtype)
        if self.dtype not in DTYPES:  # uint16 is Loader's
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
        limits = Limits() if self.limits is None else self.limits
        decoder = _core.ImageDecoder(program.ops, **image_options(image, program.fill), limits=limits)
        if isinstance(self.view, list):  # nobody shall change it beside the program
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
        """One image: a torch tensor [C, H, W] or a numpy array [H, W, C]. As `decode_image`."""
        return self._deliver(self._decode(source, self._keys(rng, 1)[0]))

    def read_batch(
        self, sources: Iterable[ImageSource], *, rng: RandomSource | None = None, threads: int | None = None
    ) -> Any:
        """Images of one size: a torch tensor [N, C, H, W] or a numpy array [N, H, W, C]. As `read_images`."""
        if isinstance(sources, str | bytes | os.PathLike):
            raise UsageError(f"expected a list of image sources, got {sources!r}; decode_image takes a single one")
        items = list(sources)
        keys = self._keys(rng, len(items))
        images = decode_all(lambda item: self._decode(items[item], keys[item]), len(items), threads)
        return self._deliver(stack(images, items))

    def _keys(self, rng: RandomSource | None, count: int) -> list[int]:
        """A view that draws nothing leaves every generator as it was."""
        return draw_keys(rng, self.output, count) if self._draws else [0] * count

    def _decode(self, source: ImageSource, key: int) -> NDArray[Any]:
        """[C, H, W] or [H, W, C], as the image's layout is."""
        if isinstance(source, str | os.PathLike):
            outcome = self._decoder.decode_file(path_of(source), key)
            if _is_declined(outcome):
                outcome = self._decode_by_pillow(source, read_path(source), outcome[1], key)
        else:
            content = content_of(source, self._limits.max_file_bytes)
            outcome = self._decoder.decode_bytes(content, key)
            if _is_declined(outcome):
                outcome = self._decode_by_pillow(source, bytes(content), outcome[1], key)
        if isinstance(outcome, tuple):
            raise error_for(source, *outcome)
        return outcome

    def _decode_by_pillow(self, source: ImageSource, data: bytes, declined: str, key: int) -> Outcome:
        try:
            pixels = pillow.decode(data, self._image, self._limits)
        except TooLargeError as error:
            raise error_for(source, LIMIT, str(error)) from error
        except ValueError as error:
            raise error_for(source, CORRUPT, f"{declined}, and {error}") from error
        return self._decoder.decode_pixels(pixels, key)

    def _deliver(self, array: NDArray[Any]) -> Any:
        if self.output == "numpy":
            return array
        import torch

        tensor = torch.from_numpy(array)
        if self.dtype == "bfloat16":
            tensor = tensor.view(torch.bfloat16)
        return tensor.movedim(-1, -3) if self._image.channels_last else tensor


def _is_declined(outcome: Outcome) -> TypeGuard[tuple[int, str]]:
    return isinstance(outcome, tuple) and outcome[0] == DECLINED


def _check_output(output: str, dtype: str) -> None:
    if output not in ("torch", "numpy"):
        raise UsageError(f"output: expected 'torch' or 'numpy', got {output!r}")
    if output == "numpy" and dtype == "bfloat16":
        raise UsageError("dtype: numpy has no bfloat16; use output='torch' or dtype='float32'")
    if output == "torch":
        try:
            import torch  # noqa: F401  # asked for here, so that the error comes before any work
        except ImportError as error:
            raise UsageError("output='torch' needs PyTorch: pip install torch; or pass output='numpy'") from error
