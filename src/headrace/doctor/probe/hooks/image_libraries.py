"""torchvision's decoders, and its transforms, v1 and v2, each by name; those that hold others by what they hold.

Transforms may be traced by torch.compile or scripted by torch.jit, also in the process that trains: classes keep their
`forward`, which is what is scripted, and every wrapper steps aside while torch compiles.
"""

from __future__ import annotations

import functools
import sys
from types import FunctionType
from typing import TYPE_CHECKING, Any, Callable

from ..timed import timed_by_type, timed_in_torch
from .libraries.paths import counted

if TYPE_CHECKING:
    from ..probe import Probe

DECODES = [
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


def install_io(probe: Probe, io: Any) -> None:
    _time_functions(probe, io, DECODES, "decode", "torchvision")
    for name, (category, argument) in BY_PATH.items():
        _time_functions(probe, io, (name,), category, "torchvision", counted(probe, argument))


def install_transforms(probe: Probe, transforms: Any) -> None:
    """Of v1, and what v2 shares with it by its layout: a module of classes, some of which hold others."""
    for name, kind in _classes(transforms):
        if name not in CONTAINERS:
            _time_class(probe, kind)
    probe.patches.replace(transforms.Compose, "__call__", lambda original: _composed(probe, original))


def install_transforms_v2(probe: Probe, transforms: Any) -> None:
    _time_class(probe, transforms.Transform, but=tuple(kind for _, kind in _containers(transforms)))
    probe.patches.replace(transforms.Compose, "forward", lambda original: _composed(probe, original))


def install_functional(probe: Probe, functional: Any) -> None:
    names = [
        name
        for name, value in vars(functional).items()
        if isinstance(value, FunctionType) and value.__module__ == functional.__name__ and not name.startswith("_")
    ]
    _time_functions(probe, functional, names, "transform", "torchvision")


def install_functional_v2(probe: Probe, functional: Any) -> None:
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
            probe.patches.replace(owner, name, timed_in_torch(probe.stages, stage, _is_compiling(), inner))


def _time_class(probe: Probe, kind: Any, but: tuple[type, ...] = ()) -> None:
    """By `__call__`, which scripting leaves out."""
    is_compiling = _is_compiling()

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
    is_compiling = _is_compiling()

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


def _is_compiling() -> Callable[[], bool]:
    """torch.compiler's, which a trace takes for a constant. A torch without one (before 2.1) is taken to compile
    nothing; torch._dynamo is not asked, since the mere question imports it, which takes seconds."""
    torch = sys.modules["torch"]
    found: Callable[[], bool] | None = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    return (lambda: False) if found is None else found
