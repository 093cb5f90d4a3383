"""Libraries that write files without a word to Python: the undo journal is told by these.

They write where they are told to, rather than to another place: scripts rename, copy, list and load again what they
have saved, by any means.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, Callable

from .. import hands_off

if TYPE_CHECKING:
    from ..hands_off.journal import Journal
    from ..probe import Probe


def install_torch(probe: Probe, serialization: Any) -> None:
    """torch.save and torch.jit.save."""
    _tell(probe, serialization, "save", lambda obj, f, *_, **__: f)


def install_script_module(probe: Probe, script: Any) -> None:
    """`save` of a scripted module, and of a traced one, whose class has a copy of it."""
    for owner in (script.RecursiveScriptModule, script.ScriptModule):
        _tell(probe, owner, "save", lambda self, f, *_, **__: f)


def install_package(probe: Probe, package_exporter: Any) -> None:
    """torch.package."""
    _tell(probe, package_exporter.PackageExporter, "__init__", lambda self, f, *_, **__: f)


def install_safetensors(probe: Probe, safetensors: Any) -> None:
    """What `save_file` of each framework calls."""
    _tell(probe, safetensors, "serialize_file", lambda tensor_dict, filename, *_, **__: filename)


def install_opencv(probe: Probe, cv2: Any) -> None:
    _tell(probe, cv2, "imwrite", lambda filename, *_, **__: filename)


def install_hdf5(probe: Probe, files: Any) -> None:
    _tell(probe, files.File, "__init__", lambda self, name, mode="r", *_, **__: None if mode == "r" else name)


def _tell(probe: Probe, owner: Any, name: str, path_of: Callable[..., Any]) -> None:
    """Before each call of `owner.name`, tells what `path_of` makes of its arguments: a path, or anything else."""
    if hands_off.active() is None:
        return

    def make(original: Any) -> Any:
        @functools.wraps(original)
        def saving(*args: Any, **kwargs: Any) -> Any:
            journal = hands_off.active()
            if journal is not None:
                journal.guarded(_tell_path, journal, path_of, args, kwargs)
            return original(*args, **kwargs)

        return saving

    probe.patches.replace(owner, name, make)


def _tell_path(journal: Journal, path_of: Callable[..., Any], args: Any, kwargs: Any) -> None:
    try:
        path = path_of(*args, **kwargs)
    except TypeError:  # called as it cannot be: that is for the original to say
        return
    if isinstance(path, (str, bytes, os.PathLike)):
        journal.saves(path)
