"""Inputs of one sample: the encoded images and arrays that are read, and hints at windows and sizes.

The doctor decodes the images again and finds the recipe by values, so nothing here has to be complete: a window or size
from a call is only tried first.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import threading
from typing import Any, Callable

from ..patches import Function, Patches

MOST_INPUT_BYTES = 32 << 20
MOST_TRACED_BYTES = 256 << 20
"""Maximum bytes of all inputs of a sample."""
MOST_INPUTS = 64
MOST_HINTS = 64
_UNSCALED = 1e-3
"""Maximum relative difference in size after a rotation."""
Hint = tuple[int, ...]
Note = Callable[[Any, Any, Any], None]
"""Receives the arguments of a call and its result."""


class TracedInput:
    """Encoded bytes that were decoded, and their origin."""

    def __init__(self, data: bytes, path: str | None) -> None:
        self.data, self.path = data, path
        self.member: str | None = None


class TracedTurn:
    """Picture that a function turned or warped."""

    def __init__(self, function: str, degrees: float | None, pixels: Any) -> None:
        """`degrees` is its counter-clockwise angle, None for anything but a rotation; `pixels` an array or None."""
        self.function, self.degrees, self.pixels = function, degrees, pixels


class ValueTrace:
    """Trace of imported decoders and geometry functions in this thread, from `begin` to `end`."""

    def __init__(self, on_first: Callable[[], None] | None = None) -> None:
        """`on_first` is called before the first image is decoded."""
        self._on_first = on_first
        self.inputs: list[TracedInput] = []
        self.boxes: list[Hint] = []
        """Top, left, height and width of crop windows."""
        self.sizes: list[Hint] = []
        """Height and width of resampled images."""
        self.turned: list[TracedTurn] = []
        self._patches = Patches()
        self._thread = threading.get_ident()
        self._is_inside = False
        self._members: list[tuple[bytes, str, str]] = []
        """Content, archive and name of each archive member that was read."""

    def begin(self) -> None:
        for module, names in _DECODERS.items():
            for name in names:
                self._follow(module, name, self._decoded, None)
        for module, hints in _GEOMETRY.items():
            for name, find in hints.items():
                self._follow(module, name, None, functools.partial(self._hinted, find))
        for module, warps in _WARPS.items():
            for name, angle in warps.items():
                self._follow(module, name, None, functools.partial(self._turned, f"{module}.{name}", angle))
        for module, members in _MEMBERS.items():
            for name, take in members.items():
                self._follow(module, name, None, functools.partial(self._read_member, take))

    def end(self) -> None:
        """Restore all functions, and find the archives that contain the inputs' bytes."""
        self._patches.restore()
        for each in self.inputs:
            for data, path, member in self._members:  # whose file objects have the archive's name
                if data == each.data:
                    each.path, each.member = path, member
                    break

    def _follow(self, module: str, path: str, before: Note | None, after: Note | None) -> None:
        """Note calls of a module's function before or after the call."""

        def call(original: Function, *args: Any, **kwargs: Any) -> Any:
            if self._is_inside or threading.get_ident() != self._thread:
                return original(*args, **kwargs)
            self._noted(before, args, kwargs, None)
            result = original(*args, **kwargs)
            self._noted(after, args, kwargs, result)
            return result

        self._patches.stand_in(sys.modules.get(module), path, call)

    def _noted(self, note: Note | None, args: Any, kwargs: Any, result: Any) -> None:
        """Note a call. Never raises, so that the sample is made as without the trace."""
        if note is None:
            return
        self._is_inside = True
        try:
            note(args, kwargs, result)
        except Exception:  # arguments that the library itself may reject: the trace need not be complete
            pass
        finally:
            self._is_inside = False

    def _decoded(self, args: Any, kwargs: Any, _: Any) -> None:
        if self._on_first is not None:
            self._on_first()
            self._on_first = None
        source = _first(args, kwargs)
        if len(self.inputs) >= MOST_INPUTS:
            return
        if isinstance(source, (str, os.PathLike)):
            path = os.path.join(os.getcwd(), os.fsdecode(source))  # the script may name only its end
            with open(path, "rb") as file:
                self._take(file.read(MOST_INPUT_BYTES + 1), path)
        elif hasattr(source, "read") and hasattr(source, "seek"):
            at = source.tell()
            source.seek(0)
            data = source.read(MOST_INPUT_BYTES + 1)
            source.seek(at)
            named = getattr(source, "name", None)
            self._take(data, os.path.join(os.getcwd(), named) if isinstance(named, str) else None)
        elif hasattr(source, "numpy"):
            self._take(source.numpy().tobytes(), None)
        elif source is not None:
            self._take(source.tobytes() if hasattr(source, "tobytes") else bytes(source), None)

    def _read_member(self, take: Callable[..., Any], args: Any, kwargs: Any, result: Any) -> None:
        self._members.extend(take(args, kwargs, result))

    def _take(self, data: bytes, path: str | None) -> None:
        if not self._has_room(len(data)):
            return
        if all(each.data != data for each in self.inputs):
            self.inputs.append(TracedInput(data, path))

    def _hinted(self, find: Callable[..., Any], args: Any, kwargs: Any, _: Any) -> None:
        box, size = find(args, kwargs)
        if box is not None and box not in self.boxes and len(self.boxes) < MOST_HINTS:
            self.boxes.append(box)
        if size is not None and size not in self.sizes and len(self.sizes) < MOST_HINTS:
            self.sizes.append(size)

    def _turned(self, function: str, angle: Callable[..., Any], args: Any, kwargs: Any, result: Any) -> None:
        """Keep what a function made, before the script changes it in place."""
        numpy = sys.modules["numpy"]
        degrees, pixels = angle(args, kwargs), None if hasattr(result, "numpy") else numpy.asarray(result)
        known = [each.pixels for each in self.turned if each.pixels is not None]
        if pixels is not None and any(numpy.array_equal(pixels, each) for each in known):
            return  # a library's function calls another's
        is_kept = degrees is not None and pixels is not None and self._has_room(pixels.nbytes)
        if len(self.turned) < MOST_INPUTS:
            self.turned.append(TracedTurn(function, degrees, numpy.array(pixels) if is_kept else None))

    def _has_room(self, size: int) -> bool:
        held = sum(len(each.data) for each in self.inputs)
        held += sum(each.pixels.nbytes for each in self.turned if each.pixels is not None)
        return size <= MOST_INPUT_BYTES and held + size <= MOST_TRACED_BYTES


def _first(args: Any, kwargs: Any) -> Any:
    return args[0] if args else next(iter(kwargs.values()), None)


def _pillow_crop(args: Any, kwargs: Any) -> tuple[Hint | None, Hint | None]:
    box = args[1] if len(args) > 1 else kwargs.get("box")
    if box is None:
        return None, None
    left, top, right, bottom = (round(side) for side in box)
    return (top, left, bottom - top, right - left), None


def _pillow_size(args: Any, kwargs: Any) -> tuple[Hint | None, Hint | None]:
    width, height = args[1] if len(args) > 1 else kwargs["size"]
    box = args[3] if len(args) > 3 else kwargs.get("box")
    cut = None if box is None else (round(box[1]), round(box[0]), round(box[3] - box[1]), round(box[2] - box[0]))
    return cut, (round(height), round(width))


def _opencv_size(args: Any, kwargs: Any) -> tuple[Hint | None, Hint | None]:
    picture = args[0] if args else kwargs["src"]
    size = args[1] if len(args) > 1 else kwargs.get("dsize")
    if size:
        return _window(picture), (int(size[1]), int(size[0]))
    scales = [args[place] if len(args) > place else kwargs.get(name, 0) for place, name in ((3, "fx"), (4, "fy"))]
    return _window(picture), (round(picture.shape[0] * scales[1]), round(picture.shape[1] * scales[0]))


def _torch_size(args: Any, kwargs: Any) -> tuple[Hint | None, Hint | None]:
    tensor = args[0] if args else kwargs["input"]
    size = args[1] if len(args) > 1 else kwargs.get("size")
    if size is None:
        factor = args[2] if len(args) > 2 else kwargs["scale_factor"]
        factors = factor if isinstance(factor, (tuple, list)) else (factor, factor)
        return None, tuple(int(side * by) for side, by in zip(tensor.shape[-2:], factors))  # Python 3.9
    sides = size if isinstance(size, (tuple, list)) else (size, size)
    return None, tuple(int(side) for side in sides)


def _skimage_size(args: Any, kwargs: Any) -> tuple[Hint | None, Hint | None]:
    height, width = (args[1] if len(args) > 1 else kwargs["output_shape"])[:2]
    return None, (int(height), int(width))


def _torchvision_crop(args: Any, kwargs: Any) -> tuple[Hint | None, Hint | None]:
    names = ("top", "left", "height", "width")
    given = (args[at] if len(args) > at else kwargs[name] for at, name in enumerate(names, 1))
    return tuple(map(int, given)), None


def _pillow_angle(args: Any, kwargs: Any) -> float | None:
    is_plain = not any(args[3:6]) and not any(kwargs.get(name) for name in ("expand", "center", "translate"))
    return float(args[1] if len(args) > 1 else kwargs["angle"]) if is_plain else None


def _opencv_angle(args: Any, kwargs: Any) -> float | None:
    (cos, sin, _), _ = (args[1] if len(args) > 1 else kwargs["M"]).tolist()
    return math.degrees(math.atan2(sin, cos)) if abs(math.hypot(cos, sin) - 1) < _UNSCALED else None


def _no_angle(args: Any, kwargs: Any) -> None:
    return None


def _window(array: Any) -> Hint | None:
    """Return the window of an image that an array is a view of; None if the array owns its memory."""
    numpy, base = sys.modules["numpy"], array.base
    if base is None or array.ndim < 2 or array.strides[0] <= 0 or array.strides[1] <= 0:
        return None
    begin = numpy.frombuffer(base, numpy.uint8) if not isinstance(base, numpy.ndarray) else base
    behind = array.__array_interface__["data"][0] - begin.__array_interface__["data"][0]
    top, rest = divmod(behind, array.strides[0])
    return int(top), int(rest // array.strides[1]), int(array.shape[0]), int(array.shape[1])


def _tar_member(args: Any, kwargs: Any, result: Any) -> list[tuple[bytes, str, str]]:
    archive, member = args[0], _first(args[1:], kwargs)
    is_stream = type(archive.fileobj).__name__ == "_Stream"
    if result is None or is_stream or not result.seekable():  # reading a stream would consume its data
        return []
    at = result.tell()
    data = result.read(MOST_INPUT_BYTES)
    result.seek(at)
    return [(data, str(getattr(archive, "name", "")), getattr(member, "name", member))]


def _zip_member(args: Any, kwargs: Any, result: Any) -> list[tuple[bytes, str, str]]:
    member = _first(args[1:], kwargs)
    return [(result, str(getattr(args[0], "filename", "")), getattr(member, "filename", member))]


_DECODERS: dict[str, tuple[str, ...]] = {
    "PIL.Image": ("open",),
    "cv2": ("imread", "imdecode"),
    "torchvision.io": ("read_image", "decode_image", "decode_jpeg", "decode_png", "decode_webp", "read_file"),
    "torchcodec.decoders": ("decode_image", "decode_jpeg", "decode_png", "decode_webp"),
    "numpy": ("load", "fromfile"),
}
"""Decoders by module. The first argument is the encoded image or its path."""
_GEOMETRY: dict[str, dict[str, Callable[[Any, Any], tuple[Any, Any]]]] = {
    "PIL.Image": {"Image.crop": _pillow_crop, "Image.resize": _pillow_size},
    "cv2": {"resize": _opencv_size},
    "skimage.transform": {"resize": _skimage_size},
    "torch.nn.functional": {"interpolate": _torch_size},
    "torchvision.transforms.functional": {"crop": _torchvision_crop, "resized_crop": _torchvision_crop},
    # v2 looks up kernels by function, so that only what these call can be followed.
    "torchvision.transforms.v2.functional._geometry": {"crop_image": _torchvision_crop, "interpolate": _torch_size},
}
"""Geometry functions by module, with the finder of a call's window and size."""
_WARPS: dict[str, dict[str, Callable[[Any, Any], Any]]] = {
    "PIL.Image": {"Image.rotate": _pillow_angle},
    "cv2": {"warpAffine": _opencv_angle, "warpPerspective": _no_angle, "remap": _no_angle},
    "scipy.ndimage": {"rotate": _no_angle, "affine_transform": _no_angle},
    "torchvision.transforms.functional": {"rotate": _no_angle, "affine": _no_angle, "perspective": _no_angle},
}
"""Functions by module after which a picture shows no window of its file, with the finder of a rotation's angle."""
_MEMBERS: dict[str, dict[str, Callable[[Any, Any, Any], list[tuple[bytes, str, str]]]]] = {
    "tarfile": {"TarFile.extractfile": _tar_member},
    "zipfile": {"ZipFile.read": _zip_member},
}
