"""Lossless encoding of samples as bytes that preserves types. It avoids pickle: cached bytes may come from a file.

Layout, little endian: `hrs1`, the outline's length (4 bytes), the outline (MessagePack), then the contents of arrays,
tensors and images, each at a multiple of 16 from the end of the outline. The outline holds dicts, lists, tuples, named
tuples and plain values; its leaves hold the offsets of their contents.
"""

from __future__ import annotations

import math
import struct
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from headrace.errors import UsageError

if TYPE_CHECKING:
    import torch
    from PIL import Image


ALIGNMENT = 16
_NUMBERS = "biufcSUMm"
"""Kinds of NumPy dtypes that are fully described by their bytes."""
MODES = (
    "1", "L", "P", "LA", "La", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "LAB", "HSV", "I", "F", "I;16",
)  # fmt: skip
"""Pillow modes that round-trip through bytes (tested)."""
KEPT = (
    "None, bool, int, float, str, bytes, numpy arrays, CPU tensors, Pillow images, and dicts, lists and tuples of these"
)


class Unsuitable(Exception):  # noqa: N818  # becomes a UsageError where the sample is known
    """Value that cannot be cached, with its place in the sample."""

    def __init__(self, value: Any, place: str, advice: str = "Return plain values, or make it in augment=") -> None:
        kind = value if isinstance(value, type) else type(value)
        name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
        super().__init__(f"{place}: expected {KEPT}, got a {name}. {advice}")


class Contents:
    """Contents after the outline."""

    def __init__(self) -> None:
        self.parts: list[bytes | memoryview | bytearray] = []
        self._end = 0

    def add(self, data: bytes | bytearray | memoryview) -> tuple[int, int]:
        """Append bytes at the next aligned offset; return the offset and length."""
        gap = -self._end % ALIGNMENT
        self.parts += [bytes(gap), data]
        at, length = self._end + gap, len(data)
        self._end = at + length
        return at, length


def _encode_leaf(value: Any, contents: Contents, place: str) -> list[Any]:
    """Encode an array, scalar, tensor or image. Raises Unsuitable."""
    if isinstance(value, np.generic) and type(value) is value.dtype.type:
        return ["scalar", *_array(np.asarray(value), contents, place)]
    if type(value) is np.ndarray:
        return ["array", *_array(value, contents, place)]
    torch = sys.modules.get("torch")
    if torch is not None and type(value) is torch.Tensor:
        return ["tensor", *_tensor(value, contents, place)]
    images: Any = sys.modules.get("PIL.Image")
    if images is not None and isinstance(value, images.Image):
        return ["image", *_image(value, contents, place)]
    raise Unsuitable(value, place)


def _part(contents: memoryview, at: int, length: int) -> memoryview:
    """Return a part of the contents. Raises ValueError if it extends past their end."""
    found = contents[at : at + length]
    if len(found) != length:
        raise ValueError("cut short")
    return found


def _array(array: np.ndarray[Any, Any], contents: Contents, place: str) -> list[Any]:
    dtype = array.dtype
    if dtype.kind not in _NUMBERS or np.dtype(dtype.str) != dtype:
        raise Unsuitable(array, f"{place} (an array of {dtype})", "Return an array of numbers, or make it in augment=")
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else memoryview(b"")
    return [dtype.str, list(array.shape), *contents.add(data)]


def _read_array(contents: memoryview, dtype: str, shape: list[int], at: int, length: int) -> Any:
    array = np.empty(shape, np.dtype(dtype))
    if array.nbytes != length:
        raise ValueError("cut short")
    if length:
        array.reshape(-1).view(np.uint8)[:] = np.frombuffer(contents, np.uint8, length, at)
    return array


def _tensor(tensor: torch.Tensor, contents: Contents, place: str) -> list[Any]:
    import torch

    if tensor.device.type != "cpu" or tensor.layout != torch.strided or tensor.is_quantized or tensor.requires_grad:
        what = f"{tensor.device.type}, {tensor.layout}" + (", with a gradient" if tensor.requires_grad else "")
        raise Unsuitable(tensor, f"{place} ({what})", "Return a dense tensor on the CPU: tensor.detach().cpu()")
    dense = tensor.resolve_conj().resolve_neg().contiguous()
    data = dense.reshape(-1).view(torch.uint8).numpy().data if dense.numel() else memoryview(b"")
    return [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), *contents.add(data)]


def _read_tensor(contents: memoryview, dtype: str, shape: list[int], at: int, length: int) -> torch.Tensor:
    import torch

    kind = getattr(torch, dtype)
    if not isinstance(kind, torch.dtype):
        raise ValueError(f"no dtype {dtype!r}")
    if math.prod(shape) * kind.itemsize != length:
        raise ValueError("cut short")
    data = torch.empty(length, dtype=torch.uint8)
    if length:
        data.numpy()[:] = np.frombuffer(contents, np.uint8, length, at)
    return data.view(kind).reshape(shape)


def _image(image: Image.Image, contents: Contents, place: str) -> list[Any]:
    if image.mode not in MODES:
        raise Unsuitable(image, f"{place} (of mode {image.mode})", "Convert it: image.convert('RGB')")
    image.load()
    palette: list[Any] | None = None
    if image.palette is not None and image.mode in ("P", "PA"):
        raw = image.palette.mode
        palette = [raw, bytes(image.getpalette(raw) or ())]
    info = [[name, encode_node(value, contents, place)] for name, value in image.info.items() if _is_plain(value)]
    return [image.mode, list(image.size), palette, info, *contents.add(image.tobytes())]


def _is_plain(value: Any) -> bool:
    """Return True for `info` entries to preserve: transparency, EXIF and colour profiles, not objects of plugins."""
    if isinstance(value, list | tuple):
        return type(value) in (list, tuple) and all(map(_is_plain, value))
    return type(value) in (type(None), bool, int, float, str, bytes)


def _read_image(
    contents: memoryview,
    mode: str,
    size: list[int],
    palette: list[Any] | None,
    info: list[Any],
    at: int,
    length: int,
) -> Image.Image:
    from PIL import Image

    if mode not in MODES:
        raise ValueError(f"no mode {mode!r}")
    whole = (size[0], size[1])
    data: Any = _part(contents, at, length)  # Pillow takes any buffer
    image = Image.frombytes(mode, whole, data) if all(whole) else Image.new(mode, whole)
    if palette is not None:
        image.putpalette(palette[1], palette[0])
    image.info = {name: decode_node(value, contents) for name, value in info}
    return image


_PLAIN = (type(None), bool, float)
_INT64 = range(-(1 << 63), 1 << 64)
"""Integers that MessagePack can represent."""


def encode_node(value: Any, contents: Contents, place: str) -> list[Any]:
    """Encode a value as a list that begins with its type. Raises Unsuitable, with `place` and the type."""
    kind = type(value)
    if kind in _PLAIN:
        return ["plain", value]
    if kind is int:
        return ["plain", value] if value in _INT64 else ["int", str(value)]
    if kind is str:  # MessagePack strings are UTF-8, Python's may hold surrogates
        return ["str", value.encode("utf-8", "surrogatepass")]
    if kind is bytes or kind is bytearray:
        return [kind.__name__, *contents.add(value)]
    if kind is dict:
        items = ([_key(key, place), encode_node(one, contents, f"{place}[{key!r}]")] for key, one in value.items())
        return ["dict", *items]
    if kind is list or kind is tuple:
        return [kind.__name__, *_items(value, contents, place)]
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return ["namedtuple", *_name_of(kind, place), *_items(value, contents, place)]
    return _encode_leaf(value, contents, place)


def decode_node(node: Any, contents: memoryview) -> Any:
    """Decode a node of `encode_node`. Raises ValueError, TypeError, KeyError or IndexError for malformed nodes."""
    word, *rest = node
    match word:
        case "plain":
            return rest[0]
        case "int":
            return int(rest[0])
        case "str":
            return str(rest[0], "utf-8", "surrogatepass")
        case "bytes":
            return bytes(_part(contents, *rest))
        case "bytearray":
            return bytearray(_part(contents, *rest))
        case "dict":
            return {decode_node(key, contents): decode_node(value, contents) for key, value in rest}
        case "list":
            return [decode_node(one, contents) for one in rest]
        case "tuple":
            return tuple(decode_node(one, contents) for one in rest)
        case "namedtuple":
            return _class_named(*rest[:2])(*(decode_node(one, contents) for one in rest[2:]))
        case "array":
            return _read_array(contents, *rest)
        case "scalar":
            return _read_array(contents, *rest)[()]
        case "tensor":
            return _read_tensor(contents, *rest)
        case "image":
            return _read_image(contents, *rest)
    raise ValueError(f"an unknown type, {word!r}")


def _items(values: Any, contents: Contents, place: str) -> list[Any]:
    return [encode_node(one, contents, f"{place}[{at}]") for at, one in enumerate(values)]


def _key(key: Any, place: str) -> list[Any]:
    """Encode a dict key, which must need no contents."""
    if type(key) in (str, int, bool, float, type(None)):
        return encode_node(key, Contents(), place)
    if type(key) is tuple:
        return ["tuple", *(_key(one, place) for one in key)]
    raise Unsuitable(key, f"a key of {place}")


def _name_of(kind: type, place: str) -> tuple[str, str]:
    """Return a named tuple's module and name. Raises Unsuitable if they do not lead back to the class."""
    if _find(kind.__module__, kind.__qualname__) is not kind:
        raise Unsuitable(kind, place, advice="Define the named tuple at the top of a module")
    return kind.__module__, kind.__qualname__


def _class_named(module: str, name: str) -> Any:
    """Find a named tuple in modules already imported. Never imports: cached bytes may be untrusted."""
    kind = _find(module, name)
    if not (isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")):
        raise ValueError(f"no named tuple {name} in {module}")
    return kind


def _find(module: str, name: str) -> Any:
    found: Any = sys.modules.get(module)
    for one in name.split("."):
        found = getattr(found, one, None)
    return found


_MAGIC = b"hrs1"
_HEAD = struct.Struct("<4sI")


class UndecodableError(Exception):
    """Bytes that are not a valid sample of this version."""


def encode_sample(sample: Any, index: int) -> bytes:
    """Encode a sample. Raises UsageError with the part of sample `index` that cannot be cached."""
    contents = Contents()
    try:
        outline = msgspec.msgpack.encode(encode_node(sample, contents, f"sample {index:,}"))
    except Unsuitable as error:
        raise UsageError(f"cached: {error}") from None
    except RecursionError:
        raise UsageError(f"cached: sample {index:,}: expected values nested a little, got lists in a circle") from None
    return b"".join([_HEAD.pack(_MAGIC, len(outline)), outline, *contents.parts])


def decode_sample(data: bytes) -> Any:
    """Decode a sample into new objects that own their memory. Raises UndecodableError."""
    try:
        magic, length = _HEAD.unpack_from(data)
        if magic != _MAGIC:
            raise UndecodableError("another version")
        outline = msgspec.msgpack.decode(memoryview(data)[_HEAD.size : _HEAD.size + length])
        return decode_node(outline, memoryview(data)[_HEAD.size + length :])
    except (struct.error, msgspec.DecodeError, KeyError, IndexError, TypeError, ValueError, RecursionError) as error:
        raise UndecodableError(str(error)) from error
