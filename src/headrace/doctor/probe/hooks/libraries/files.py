"""Files that are read while a batch is made: by `open`, pathlib, os, numpy and torch.

Outside of a batch nothing but one more call happens. Within one, a file opened for reading bytes is an
io.BufferedReader whose `read` is timed; its descriptor, mmap, pickle, numpy's reads and all else are those of an
io.BufferedReader. Text is not timed, nor what C libraries read by a path: that is a part of whatever asks for it.
"""

from __future__ import annotations

import builtins
import io
import pathlib
from typing import TYPE_CHECKING, Any, Callable

from ...stages import Stages
from ...timed import Builtin
from . import reads

if TYPE_CHECKING:
    from types import ModuleType

    from ...probe import Probe


def install(probe: Probe, _: ModuleType) -> None:
    """Called with a module of torch, so that Python processes without it are left alone."""
    probe.patches.replace(builtins, "open", lambda original: Builtin(original, _opening(probe, original)))
    probe.time_calls(pathlib.Path, "read_bytes", "read", "file")
    probe.time_calls(pathlib.Path, "read_text", "read", "file")


def install_os(probe: Probe, os: Any) -> None:
    for name in ("pread", "preadv"):
        probe.time_calls(os, name, "read", f"os.{name}")


def install_numpy(probe: Probe, numpy: Any) -> None:
    for name in ("fromfile", "genfromtxt", "load", "loadtxt"):
        probe.time_calls(numpy, name, "read", f"numpy {name}")


def install_torch(probe: Probe, torch: Any) -> None:
    probe.time_calls(torch, "load", "read", "torch.load")


def _opening(probe: Probe, original: Callable[..., Any]) -> Callable[..., Any]:
    stages, stage = probe.stages, probe.stage("read", "file")
    reader = _reader_class(probe, stage)

    def open_(*args: Any, **kwargs: Any) -> Any:
        if not stages.is_counting:
            return original(*args, **kwargs)
        file = _timed_open(stages, stage, original, args, kwargs)
        if type(file) is not io.BufferedReader or type(file.raw) is not io.FileIO or _buffering(args, kwargs) != -1:
            return file
        return reader(file.detach(), getattr(file, "_headrace", 0) or io.DEFAULT_BUFFER_SIZE)

    return open_
