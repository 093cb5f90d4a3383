"""Hooks on libraries that decode or transform images, or tokenise text.

torch.compile may trace torchvision transforms, and torch.jit may script them, also in the training process. Classes
therefore keep their `forward`, which is scripted, and every wrapper calls the original while torch compiles.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import FunctionType, ModuleType
from typing import Any, Callable

from ..batch_production import OpenedFiles
from ..patches import Function
from ..stages import CallTimer, stand_in, timed, timed_by_type, timed_call, unless_compiling
from .file_libraries import TimedCall, counted
from .training_calls import compiling

PILLOW_LOADERS = [
    "PIL.ImageFile",
    *(f"PIL.{name}ImagePlugin" for name in ("Avif", "Eps", "Gif", "Icns", "Ico", "Jpeg2K", "Tiff", "WebP")),
]
"""Modules of classes whose `load` decodes: the base class, and plugins that override it."""
PILLOW_TRANSFORMS = (
    *("crop", "reduce", "resize", "rotate", "thumbnail", "transform", "transpose"),
    *("convert", "filter", "quantize"),
)
OPENCV_DECODES = ("imdecode", "imdecodemulti", "imread", "imreadmulti")
OPENCV_TRANSFORMS = (
    *("GaussianBlur", "bilateralFilter", "blur", "filter2D", "medianBlur", "pyrDown"),
    *("LUT", "addWeighted", "convertScaleAbs", "cvtColor", "equalizeHist", "normalize"),
    *("copyMakeBorder", "flip", "getRectSubPix", "remap", "resize", "rotate", "transpose"),
    *("warpAffine", "warpPerspective", "warpPolar"),
)
TORCHVISION_DECODES = (
    *("decode_avif", "decode_gif", "decode_heic", "decode_jpeg", "decode_png", "decode_webp"),
    *("decode_image", "read_image"),
)
TORCHCODEC_DECODES = (*(f"decode_{kind}" for kind in ("avif", "gif", "heic", "jpeg", "png", "webp")), "decode_image")
TORCHCODEC_FRAMES = (
    *("__init__", "__getitem__", "get_all_frames", "get_frame_at", "get_frame_played_at", "get_frames_at"),
    *("get_frames_in_range", "get_frames_played_at", "get_frames_played_in_range"),
)
BY_PATH = {"read_file": ("read", "path"), "read_video": ("decode", "filename")}
"""torchvision functions that open a file in C, with category of the stage, and name of the path argument."""
CONTAINERS = ("Compose", "RandomApply", "RandomChoice", "RandomOrder", "RandomTransforms")
_NOT_TRANSFORMS = ("get_dimensions", "get_image_num_channels", "get_image_size", "register_kernel")
IMAGE_CALLS: dict[str, list[TimedCall]] = {
    "PIL.Image": [
        ("open", "decode", "Pillow open"),
        *((f"Image.{name}", "transform", f"Pillow {name}") for name in PILLOW_TRANSFORMS),
    ],
    # OpenCV's functions use their own threads; CPU time of these is not measured.
    "cv2": [
        *((name, "decode", f"OpenCV {name}") for name in OPENCV_DECODES),
        *((name, "transform", f"OpenCV {name}") for name in OPENCV_TRANSFORMS),
        ("VideoCapture.read", "decode", "OpenCV video"),
    ],
    "torchcodec.decoders._image_decoders": [(name, "decode", f"torchcodec {name}") for name in TORCHCODEC_DECODES],
    "torchcodec.decoders._video_decoder": [
        (f"VideoDecoder.{name}", "decode", "torchcodec video") for name in TORCHCODEC_FRAMES
    ],
    # Transforms by class. Containers (Compose, OneOf, …) count by their inner transforms.
    "albumentations.core.transforms_interface": [("BasicTransform.__call__", "transform", None)],
    "tokenizers": [
        (f"Tokenizer.{name}", "tokenise", f"tokenizers {name}")
        for name in ("encode", "encode_batch", "encode_batch_fast")
    ],
    "transformers.tokenization_utils_base": [
        (f"PreTrainedTokenizerBase.{name}", "tokenise", None)
        for name in ("__call__", "encode", "pad", "apply_chat_template")
    ],
    "transformers.image_processing_utils": [("BaseImageProcessor.__call__", "transform", None)],
}
"""Calls that are stages, by the module that defines them."""


def install_pillow(timer: CallTimer, plugin: ModuleType) -> None:
    """Hook each `load` that a module defines."""
    for value in list(vars(plugin).values()):
        if isinstance(value, type) and value.__module__ == plugin.__name__ and "load" in vars(value):
            _time_load(timer, value)


def _time_load(timer: CallTimer, kind: type) -> None:
    """Count one decode per image: `load` of a decoded image does nothing, and conversions call it again."""
    stage = timer.stage("decode", "Pillow load")

    def make(original: Function) -> Function:
        time_call = timed_call(timer.stages, stage, original)

        def load(image: Any, *args: Any, **kwargs: Any) -> Any:
            return (original if _has_pixels(image) else time_call)(image, *args, **kwargs)

        return stand_in(original, load)

    timer.patches.replace(kind, "load", make)


def _has_pixels(image: Any) -> bool:
    """Return True if the first frame is decoded. A later frame may not be, although the image holds pixels."""
    held = vars(image)
    pixels = held.get("_im", held.get("im"))  # before Pillow 11
    try:
        return pixels is not None and not held.get("tile") and image.tell() == 0
    except Exception:  # of a user's plugin
        return False


def install_opencv(timer: CallTimer, opened: OpenedFiles, used: set[str], cv2: Any) -> None:
    """Record OpenCV as used once it is called: many import OpenCV without using its thread pool."""

    def marked(original: Function, *args: Any, **kwargs: Any) -> Any:
        used.add("cv2")
        return original(*args, **kwargs)

    for name in (*OPENCV_DECODES, *OPENCV_TRANSFORMS):
        timer.patches.stand_in(cv2, name, marked)
    timer.patches.stand_in(cv2.VideoCapture, "read", marked)
    for name in ("imread", "imreadmulti"):
        timer.patches.replace(cv2, name, counted(timer.stages, opened, "filename"))


def install_torchvision_io(timer: CallTimer, opened: OpenedFiles, io: Any) -> None:
    _time_functions(timer, io, TORCHVISION_DECODES, "decode")
    for name, (category, argument) in BY_PATH.items():
        _time_functions(timer, io, [name], category, counted(timer.stages, opened, argument))


def _install_transforms(timer: CallTimer, transforms: Any) -> None:
    """Hook v1 transforms by name, and containers by their inner transforms."""
    for name, kind in dict(vars(transforms)).items():
        is_own = isinstance(kind, type) and kind.__module__ == transforms.__name__
        if is_own and name not in CONTAINERS and any("__call__" in vars(base) for base in kind.__mro__):
            _time_class(timer, kind)
    _time_parts(timer, transforms.Compose, "__call__")


def _install_transforms_v2(timer: CallTimer, transforms: Any) -> None:
    """Hook v2 transforms, which share one base class."""
    containers = (getattr(transforms, name, None) for name in CONTAINERS)
    _time_class(timer, transforms.Transform, but=tuple(kind for kind in containers if isinstance(kind, type)))
    _time_parts(timer, transforms.Compose, "forward")


def _install_functional(timer: CallTimer, functional: Any) -> None:
    """Hook functional transforms of v1 and v2, and v2's registry of kernels, whose keys are the functions."""
    registry = functional._utils._KERNEL_REGISTRY if functional.__name__.endswith(".v2.functional") else None
    originals = {
        name: value
        for name, value in vars(functional).items()
        if isinstance(value, FunctionType)
        and not name.startswith("_")
        and (value.__module__ == functional.__name__ if registry is None else value in registry)
    }
    _time_functions(timer, functional, originals, "transform")
    if registry is not None:
        for name, original in originals.items():
            registry[getattr(functional, name)] = registry[original]


TORCHVISION_TRANSFORMS: dict[str, Callable[[CallTimer, Any], None]] = {
    "transforms": _install_transforms,
    "functional": _install_functional,
    "v2": _install_transforms_v2,
    "v2.functional": _install_functional,
}


def _time_functions(
    timer: CallTimer, owner: Any, names: Iterable[str], category: str, inner: Callable[[Any], Any] | None = None
) -> None:
    """Count calls of the functions as stages. `inner` makes another stand-in under the timed one."""
    for name in names:
        if name not in _NOT_TRANSFORMS:
            time_call = timed(timer.stages, timer.stage(category, f"torchvision {name}"))
            make = time_call if inner is None else lambda original, outer=time_call: outer(inner(original))
            _replace(timer, owner, name, make)


def _time_class(timer: CallTimer, kind: Any, but: tuple[type, ...] = ()) -> None:
    """Count calls through `__call__`, which scripting leaves out."""

    def make(original: Function) -> Function:
        time_call = timed_by_type(timer, "transform")(original)

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            return (original if isinstance(self, but) else time_call)(self, *args, **kwargs)

        return call

    _replace(timer, kind, "__call__", make)


def _time_parts(timer: CallTimer, compose: type, method: str) -> None:
    """Time the parts of a Compose, on a stand-in: other threads keep its list. User parts may be any callable."""

    def timed_child(child: Any) -> Any:
        name = type(child).__name__
        if name in CONTAINERS:
            return child
        stage = timer.stage("transform", child.__qualname__ if isinstance(child, FunctionType) else name)
        return timed_call(timer.stages, stage, child)

    def make(original: Function) -> Function:
        def call(self: Any, *args: Any) -> Any:
            if not timer.stages.is_counting:
                return original(self, *args)
            stand_in = object.__new__(type(self))
            vars(stand_in).update(vars(self), transforms=[timed_child(child) for child in self.transforms])
            return original(stand_in, *args)

        return call

    _replace(timer, compose, method, make)


def _replace(timer: CallTimer, owner: Any, name: str, make: Callable[[Function], Function]) -> None:
    timer.patches.replace(owner, name, unless_compiling(compiling(sys.modules["torch"]), make))
