"""Hooks on libraries that decode images, transform them, or tokenise text."""

from __future__ import annotations

import functools
import sys
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Callable

from ..stages import TimedFunction, stand_in, timed_by_type, timed_in_torch
from .file_libraries import count_paths, counted

if TYPE_CHECKING:
    from ..probe import Probe


# -- from doctor/probe/hooks/libraries/torchvision.py: torchvision's decoders, and its transforms, v1 and v2, each by
# name; those that hold others by what they hold.
#
# Transforms may be traced by torch.compile or scripted by torch.jit, also in the process that trains: classes keep
# their
# `forward`, which is what is scripted, and every wrapper steps aside while torch compiles.


TORCHVISION_DECODES = [
    "decode_avif",
    "decode_gif",
    "decode_heic",
    "decode_image",
    "decode_jpeg",
    "decode_png",
    "decode_webp",
    "read_image",
]
BY_PATH = {"read_file": ("read", "path"), "read_video": ("decode", "filename")}
"""Functions that C opens a file for: their stage's category, and the argument that is its path."""
CONTAINERS = ("Compose", "RandomApply", "RandomChoice", "RandomOrder", "RandomTransforms")
_NOT_TRANSFORMS = ("get_dimensions", "get_image_num_channels", "get_image_size", "register_kernel")


def install_torchvision_io(probe: Probe, io: Any) -> None:
    _time_functions(probe, io, TORCHVISION_DECODES, "decode", "torchvision")
    for name, (category, argument) in BY_PATH.items():
        _time_functions(probe, io, (name,), category, "torchvision", counted(probe, argument))


def install_torchvision_transforms(probe: Probe, transforms: Any) -> None:
    """Of v1, and what v2 shares with it by its layout: a module of classes, some of which hold others."""
    for name, kind in _classes(transforms):
        if name not in CONTAINERS:
            _time_class(probe, kind)
    probe.patches.replace(transforms.Compose, "__call__", lambda original: _composed(probe, original))


def install_torchvision_transforms_v2(probe: Probe, transforms: Any) -> None:
    _time_class(probe, transforms.Transform, but=tuple(kind for _, kind in _containers(transforms)))
    probe.patches.replace(transforms.Compose, "forward", lambda original: _composed(probe, original))


def install_torchvision_functional(probe: Probe, functional: Any) -> None:
    names = [
        name
        for name, value in vars(functional).items()
        if isinstance(value, FunctionType) and value.__module__ == functional.__name__ and not name.startswith("_")
    ]
    _time_functions(probe, functional, names, "transform", "torchvision")


def install_torchvision_functional_v2(probe: Probe, functional: Any) -> None:
    """Its functions are keys of a registry of kernels, where the new ones must be found, too."""
    registry = functional._utils._KERNEL_REGISTRY
    originals = {
        name: value
        for name, value in vars(functional).items()
        if isinstance(value, FunctionType) and not name.startswith("_") and value in registry
    }
    _time_functions(probe, functional, list(originals), "transform", "torchvision")
    for name, original in originals.items():
        registry[getattr(functional, name)] = registry[original]


def _time_functions(
    probe: Probe, owner: Any, names: Any, category: str, label: str, inner: Callable[[Any], Any] | None = None
) -> None:
    """`inner` makes another stand-in, behind the one that is timed."""
    for name in names:
        if name not in _NOT_TRANSFORMS:
            stage = probe.stage(category, f"{label} {name}")
            probe.patches.replace(owner, name, timed_in_torch(probe.stages, stage, _torch_compiling(), inner))


def _time_class(probe: Probe, kind: Any, but: tuple[type, ...] = ()) -> None:
    """By `__call__`, which scripting leaves out."""
    is_compiling = _torch_compiling()

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        time_call = timed_by_type(probe.stages, lambda label: probe.stage("transform", label))(original)

        @functools.wraps(original)
        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            if is_compiling() or isinstance(self, but):
                return original(self, *args, **kwargs)
            return time_call(self, *args, **kwargs)

        return __call__

    probe.patches.replace(kind, "__call__", make)


def _composed(probe: Probe, original: Callable[..., Any]) -> Callable[..., Any]:
    """Times what a Compose holds, of which the user's own may be anything that can be called: `original` runs on a
    stand-in for the Compose, so that its own list stays as it is, also for other threads."""
    is_compiling = _torch_compiling()

    @functools.wraps(original)
    def call(self: Any, *args: Any) -> Any:
        if is_compiling() or not probe.stages.is_counting:
            return original(self, *args)
        stand_in = object.__new__(type(self))
        vars(stand_in).update(vars(self), transforms=[_timed_child(probe, child) for child in self.transforms])
        return original(stand_in, *args)

    return call


def _timed_child(probe: Probe, child: Any) -> Any:
    name = type(child).__name__
    if name in CONTAINERS:
        return child
    if isinstance(child, FunctionType):
        name = child.__qualname__
    stage = probe.stage("transform", name)

    def call(*args: Any) -> Any:
        account = probe.stages.enter(stage)
        if account is None:
            return child(*args)
        try:
            result = child(*args)
        finally:
            account.leave()
        if account.look is not None:
            account.gave(stage, result, args)
        return result

    return call


def _classes(module: Any) -> list[tuple[str, type]]:
    """Its own, whose objects can be called."""
    own = [(name, value) for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    return [
        (name, value)
        for name, value in own
        if isinstance(value, type) and any("__call__" in vars(base) for base in value.__mro__)
    ]


def _containers(module: Any) -> list[tuple[str, type]]:
    return [(name, getattr(module, name)) for name in CONTAINERS if isinstance(getattr(module, name, None), type)]


def _torch_compiling() -> Callable[[], bool]:
    """torch.compiler's, which a trace takes for a constant. A torch without one (before 2.1) is taken to compile
    nothing; torch._dynamo is not asked, since the mere question imports it, which takes seconds."""
    torch = sys.modules["torch"]
    found: Callable[[], bool] | None = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    return (lambda: False) if found is None else found


# -- from doctor/probe/hooks/libraries/pillow.py: Pillow. It opens files lazily: pixels are decoded wherever they are
# first asked for, a transform or numpy.


BILINEAR = 2
NATIVE_DECODE = "native_decode"
"""Key of the remedy."""
FROM_UNREAD = "_headrace_unread"
"""Attribute of an image: it was converted from one of which no pixel had been read."""
PILLOW_LOADERS = ["Avif", "Eps", "Gif", "Icns", "Ico", "Jpeg2K", "Tiff", "WebP"]
"""Plugins whose classes decode in a `load` of their own."""
PILLOW_TRANSFORMS = [
    "convert",
    "crop",
    "filter",
    "quantize",
    "reduce",
    "resize",
    "rotate",
    "thumbnail",
    "transform",
    "transpose",
]


def install_pillow(probe: Probe, image: Any) -> None:
    probe.time_calls(image, "open", "decode", "Pillow open")
    for name in PILLOW_TRANSFORMS:
        probe.time_calls(image.Image, name, "transform", f"Pillow {name}")
    watch = _WouldTake(probe)
    probe.patches.replace(image.Image, "convert", watch.convert)
    probe.patches.replace(image.Image, "resize", watch.resize)


def install_pillow_file(probe: Probe, image_file: Any) -> None:
    probe.time_calls(image_file.ImageFile, "load", "decode", "Pillow load")
    probe.patches.replace(image_file.ImageFile, "load", _WouldTake(probe).load)


class _WouldTake:
    """Sees in samples that are looked at closely whether the native decoder could stand for Pillow's: for a PNG, or a
    bilinear resize of an image of which no pixel was read, converted to RGB or not."""

    def __init__(self, probe: Probe) -> None:
        self._look = probe.stages.look
        guard = probe.batches.guard
        self._see_load, self._see_resize = guard(self._at_load), guard(self._at_resize)
        self._is_unread, self._follow = guard(_is_unread), guard(_follow)

    def load(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def load(image: Any, *args: Any, **kwargs: Any) -> Any:
            if self._look() is not None:
                self._see_load(image)
            return original(image, *args, **kwargs)

        return load

    def convert(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def convert(image: Any, *args: Any, **kwargs: Any) -> Any:
            if self._look() is None or not self._is_unread(image):
                return original(image, *args, **kwargs)
            converted = original(image, *args, **kwargs)
            self._follow(converted)
            return converted

        return convert

    def resize(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def resize(image: Any, size: Any, resample: Any = None, *args: Any, **kwargs: Any) -> Any:
            if self._look() is not None and resample == BILINEAR and not args and not kwargs:
                self._see_resize(image)
            return original(image, size, resample, *args, **kwargs)

        return resize

    def _at_load(self, image: Any) -> None:
        look = self._look()
        if look is not None and image.format == "PNG" and _is_unread(image):
            look.takes.add(NATIVE_DECODE)

    def _at_resize(self, image: Any) -> None:
        look = self._look()
        if look is not None and (FROM_UNREAD in vars(image) or _is_unread(image)):
            look.takes.add(NATIVE_DECODE)


def _is_unread(image: Any) -> bool:
    from ..remedies.images import is_unread  # which few processes need

    return is_unread(image)


def _follow(converted: Any) -> None:
    if converted.mode == "RGB":
        setattr(converted, FROM_UNREAD, True)


def install_pillow_plugin(probe: Probe, plugin: ModuleType) -> None:
    for value in list(vars(plugin).values()):
        if isinstance(value, type) and value.__module__ == plugin.__name__ and "load" in vars(value):
            probe.time_calls(value, "load", "decode", "Pillow load")


# -- from doctor/probe/hooks/libraries/opencv.py: OpenCV. Its functions use threads of their own, whose CPU time is
# not seen.


OPENCV_DECODES = ["imdecode", "imdecodemulti", "imread", "imreadmulti"]
OPENCV_TRANSFORMS = [
    "GaussianBlur",
    "LUT",
    "addWeighted",
    "bilateralFilter",
    "blur",
    "convertScaleAbs",
    "copyMakeBorder",
    "cvtColor",
    "equalizeHist",
    "filter2D",
    "flip",
    "getRectSubPix",
    "medianBlur",
    "normalize",
    "pyrDown",
    "remap",
    "resize",
    "rotate",
    "transpose",
    "warpAffine",
    "warpPerspective",
    "warpPolar",
]


def install_opencv(probe: Probe, cv2: Any) -> None:
    """Its pool of threads counts once one of these was called: many import OpenCV and use none of it."""

    def marked(original: TimedFunction) -> TimedFunction:
        def call(*args: Any, **kwargs: Any) -> Any:
            probe.used.add("cv2")
            return original(*args, **kwargs)

        return stand_in(original, call)

    for owner, name in [*((cv2, name) for name in (*OPENCV_DECODES, *OPENCV_TRANSFORMS)), (cv2.VideoCapture, "read")]:
        probe.patches.replace(owner, name, marked)
    for name in ("imread", "imreadmulti"):
        count_paths(probe, cv2, name, "filename")
    for name in OPENCV_DECODES:
        probe.time_calls(cv2, name, "decode", f"OpenCV {name}")
    for name in OPENCV_TRANSFORMS:
        probe.time_calls(cv2, name, "transform", f"OpenCV {name}")
    probe.time_calls(cv2.VideoCapture, "read", "decode", "OpenCV video")


# -- from doctor/probe/hooks/libraries/albumentations.py: albumentations: each transform by its class, those that hold
# others (Compose, OneOf, …) by what they hold.


def install_albumentations(probe: Probe, interface: Any) -> None:
    probe.time_calls_by_type(interface.BasicTransform, "__call__", "transform")


# -- from doctor/probe/hooks/libraries/imageio.py: imageio: one decode, whichever library it asks.


IMAGEIO_READS = ("imread", "imopen", "mimread", "mvolread", "volread")


def install_imageio(probe: Probe, imageio: ModuleType) -> None:
    """Of imageio.v2 or imageio.v3."""
    for name in IMAGEIO_READS:
        probe.time_calls(imageio, name, "decode", f"imageio {name}")


# -- from doctor/probe/hooks/libraries/tokenizers.py: tokenizers, and the tokenizers and processors of transformers.


ENCODES = ("encode", "encode_batch", "encode_batch_fast")


def install_tokenizers(probe: Probe, tokenizers: Any) -> None:
    for name in ENCODES:
        probe.time_calls(tokenizers.Tokenizer, name, "tokenise", f"tokenizers {name}")


def install_transformers(probe: Probe, base: Any) -> None:
    for name in ("__call__", "encode", "pad", "apply_chat_template"):
        probe.time_calls_by_type(base.PreTrainedTokenizerBase, name, "tokenise")


def install_image_processing(probe: Probe, processing: Any) -> None:
    probe.time_calls_by_type(processing.BaseImageProcessor, "__call__", "transform")
