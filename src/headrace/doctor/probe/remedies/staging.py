"""Files that were copied to memory or to a local disk before the run: who opens one for reading is given the copy."""

from __future__ import annotations

import builtins
import functools
import io
import os
from typing import TYPE_CHECKING, Any, Callable

from ..timed import Builtin
from .applied import Applied

if TYPE_CHECKING:
    from types import ModuleType

    from ..probe import Probe

BY_PATH = {
    "cv2": ("imread", "imreadmulti"),
    "torchvision.io.image": ("read_file",),
    "torchvision.io.video": ("read_video",),
    "numpy": ("fromfile", "load", "memmap"),
}
"""Functions that C opens files for, by the path that is their first argument."""


def install(probe: Probe, pairs: list[list[str]], applied: Applied) -> None:
    """`pairs` are [source, copy]: files, or folders with all that is in them."""
    redirect = _Redirect(pairs, applied)
    probe.patches.replace(builtins, "open", redirect.opening)
    probe.patches.replace(io, "open", redirect.opening)
    probe.patches.replace(os, "open", redirect.opening_descriptor)
    probe.when_imported("tarfile", redirect.watch_tars)
    probe.when_imported("h5py._hl.files", redirect.watch_hdf5)
    for module, names in BY_PATH.items():
        probe.when_imported(module, functools.partial(_replace, redirect, names))


def _replace(redirect: _Redirect, names: tuple[str, ...], probe: Probe, module: ModuleType) -> None:
    for name in names:
        if not isinstance(getattr(module, name, None), type):  # numpy.memmap is a class, which opens by `open`
            probe.patches.replace(module, name, redirect.reading)


class _Redirect:
    """From paths to those of their copies."""

    def __init__(self, pairs: list[list[str]], applied: Applied) -> None:
        self._files = {os.path.abspath(source): copy for source, copy in pairs if not os.path.isdir(copy)}
        self._folders = [
            (os.path.join(os.path.abspath(source), ""), copy) for source, copy in pairs if os.path.isdir(copy)
        ]
        self._applied = applied
        self._find = applied.guarded(self._copy_of)

    def opening(self, original: Callable[..., Any]) -> Builtin:
        def open_(*args: Any, **kwargs: Any) -> Any:
            mode = args[1] if len(args) > 1 else kwargs.get("mode", "r")
            file = args[0] if args else kwargs.get("file")
            is_read = type(mode) is str and not set(mode) & set("wxa+")
            copy = self._find(file) if is_read else None
            if copy is None:
                return original(*args, **kwargs)
            return original(copy, *args[1:], **{name: value for name, value in kwargs.items() if name != "file"})

        return Builtin(original, open_)

    def opening_descriptor(self, original: Callable[..., int]) -> Builtin:
        def open_(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            is_read = not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and kwargs.get("dir_fd") is None
            return original((self._find(path) if is_read else None) or path, flags, *args, **kwargs)

        return Builtin(original, open_)

    def reading(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def read(path: Any, *args: Any, **kwargs: Any) -> Any:
            return original(self._find(path) or path, *args, **kwargs)

        return read

    def watch_tars(self, probe: Probe, tarfile: Any) -> None:
        """It has `open` by a name of its own, which was taken before ours was there."""
        probe.patches.replace(tarfile, "bltn_open", self.opening)

    def watch_hdf5(self, probe: Probe, files: Any) -> None:
        def make(original: Callable[..., None]) -> Callable[..., None]:
            @functools.wraps(original)
            def __init__(file: Any, name: Any, mode: str = "r", *args: Any, **kwargs: Any) -> None:  # noqa: N807
                original(file, (self._find(name) if mode == "r" else None) or name, mode, *args, **kwargs)

            return __init__

        probe.patches.replace(files.File, "__init__", make)

    def _copy_of(self, file: Any) -> str | None:
        if not isinstance(file, (str, os.PathLike)):
            return None
        given = os.fspath(file)
        if not isinstance(given, str):
            return None
        path = os.path.abspath(given)
        copy = self._files.get(path) or self._in_folder(path)
        if copy is not None:
            self._applied.took()
        return copy

    def _in_folder(self, path: str) -> str | None:
        """None also for what was not there when the folder was copied."""
        for folder, copy in self._folders:
            if path.startswith(folder):
                inside = os.path.join(copy, path[len(folder) :])
                return inside if os.path.exists(inside) else None
        return None
