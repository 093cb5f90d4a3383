"""Hooks that save, rename and delete weights which are not the user's in a scratch folder only.

From the first repeated batch on, and in every run of a proof, what a script saves comes from a training that is not
the user's. Scripts rename, copy, reload and rotate checkpoints, so the functions of `os` that take a path follow a
saved file into the `ScratchView`, and a weight file that a script deletes or replaces only disappears from that view.
"""

from __future__ import annotations

import builtins
import io
import os
import shutil
from functools import partial
from types import ModuleType
from typing import Any, Callable

from .patches import Builtin, Fault, Function, HookGuard, Patches

WEIGHTS = (
    ".bin", ".ckpt", ".distcp", ".metadata", ".npy", ".npz", ".pickle", ".pkl", ".pt", ".pth", ".safetensors", ".tar"
)  # fmt: skip
"""Ends of the names of files with weights or arrays."""


class ScratchView:
    """Places of weights in a scratch folder that mirrors the file system, by the paths that the script uses."""

    def __init__(self, folder: str, note: Callable[[str, str], None]) -> None:
        self._folder, self._note = folder, note
        self._places: dict[str, str] = {}
        """Path in the scratch folder of what the script has saved or deleted, by its own path."""
        self._is_noted = False

    def _text(self, path: Any) -> str | None:
        """Return the absolute path of a file of the user's; None for descriptors, and in the scratch folder."""
        text = os.path.abspath(os.fsdecode(path)) if isinstance(path, (str, bytes, os.PathLike)) else self._folder
        return None if text.startswith(self._folder) else text

    def is_weights(self, path: Any) -> bool:
        text = self._text(path)
        return text is not None and text.endswith(WEIGHTS)

    def read(self, path: Any) -> str | None:
        """Return the place of what a path names in the script's view; None if it is where the path says."""
        if not self._places or (text := self._text(path)) is None:
            return None
        return next((self._places[up] + text[len(up) :] for up in _upwards(text) if up in self._places), None)

    def write(self, path: Any) -> str | None:
        """Return the place in the scratch folder for what is saved to a path; None if it stays."""
        text = self._text(path)
        if text is None:
            return None
        place = self.read(text)
        if place is None:
            place = self._places[text] = self._folder + text
            if not self._is_noted:
                self._is_noted = True
                self._note(
                    "scratch-saves", f"Weights of repeated batches are saved in a scratch folder, not at {text}."
                )
        os.makedirs(os.path.dirname(place), exist_ok=True)
        return place

    def hide(self, path: Any) -> None:
        """Let a path name nothing in the script's view."""
        text = self._text(path)
        place = None if text is None else self._places.setdefault(text, self._folder + text)
        if place is not None:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.unlink(place) if os.path.isfile(place) else shutil.rmtree(place, ignore_errors=True)

    def move(self, source: Any, target: Any) -> None:
        """Give what was saved below a renamed folder its new path."""
        before, after = self._text(source), self._text(target)
        if before is None or after is None:
            return
        for path in [one for one in self._places if one.startswith(f"{before}/")]:
            self._places[after + path[len(before) :]] = self._places.pop(path)

    def holds_weights(self, folder: str) -> bool:
        files = (file for _, _, names in os.walk(folder) for file in names)
        inside = os.path.join(os.path.abspath(folder), "")
        return any(map(self.is_weights, files)) or any(path.startswith(inside) for path in self._places)


def _upwards(path: str) -> list[str]:
    """Return a path and the folders around it, from the innermost on."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(len(parts), 1, -1)]


SAVES = (
    ("torch.serialization", "save", 1, "f"),
    ("torch.jit._serialization", "save", 1, "f"),
    ("torch.jit._script", "RecursiveScriptModule.save", 1, "f"),
    ("torch.jit._script", "ScriptModule.save", 1, "f"),
    ("torch.package.package_exporter", "PackageExporter.__init__", 1, "f"),
    ("safetensors", "serialize_file", 1, "filename"),
    ("transformers.modeling_utils", "PreTrainedModel.save_pretrained", 1, "save_directory"),
    ("transformers.tokenization_utils_base", "PreTrainedTokenizerBase.save_pretrained", 1, "save_directory"),
    ("transformers.processing_utils", "ProcessorMixin.save_pretrained", 1, "save_directory"),
    ("diffusers.models.modeling_utils", "ModelMixin.save_pretrained", 1, "save_directory"),
    ("diffusers.pipelines.pipeline_utils", "DiffusionPipeline.save_pretrained", 1, "save_directory"),
    ("peft.peft_model", "PeftModel.save_pretrained", 1, "save_directory"),
    ("huggingface_hub.hub_mixin", "ModelHubMixin.save_pretrained", 1, "save_directory"),
)
"""Functions that save by a path: module, name, and the path's position and name. See also `WEIGHTS`."""
LOADS = (("torch.serialization", "load", 0, "f"), ("safetensors.torch", "load_file", 0, "filename"))
"""Functions that read such a file without opening it in Python."""
PlaceOf = Callable[[Any], Any]
"""Function that returns the place of a path in the scratch folder; None if it is where the path says."""
_BY_PATH = ("access", "chmod", "listdir", "lstat", "mkdir", "rmdir", "scandir", "stat", "utime", "listxattr")
"""Functions of `os` whose first argument is a path that is neither renamed nor removed."""


class ScratchSaves:
    """Stand-ins for functions of files by path, with the paths of a ScratchView. Descriptors are left alone."""

    def __init__(self, folder: str, note: Callable[[str, str], None], fault: Fault) -> None:
        view = ScratchView(folder, note)
        self._is_weights, self._holds_weights = view.is_weights, view.holds_weights
        self._patches = Patches()
        guard = HookGuard(fault, "weights in a scratch folder")
        self._target, self._seen = guard(view.write), guard(view.read)
        self._hidden, self._follows = guard(view.hide), guard(view.move)
        self.is_on = False

    def hooks(self, patches: Patches) -> list[tuple[str, Callable[[ModuleType], object]]]:
        """Return the modules to hook, and the function that installs each hook."""
        calls = [*((self._target, one) for one in SAVES), *((self._seen, one) for one in LOADS)]
        return [(module, partial(self._install, patches, place_of, where)) for place_of, (module, *where) in calls]

    def begin(self) -> None:
        """Redirect from now on, to the end of the process."""
        if self.is_on:
            return
        self.is_on = True
        for owner, name in ((builtins, "open"), (io, "open")):
            self._patches.replace(owner, name, lambda original: Builtin(original, partial(self._open, original)))
        calls = dict.fromkeys(_BY_PATH, self._by_path)
        calls.update(open=self._open_descriptor, remove=self._remove, unlink=self._remove)
        calls.update(rename=self._rename, replace=self._rename, link=self._link, symlink=self._symlink)
        for name, call in calls.items():
            self._patches.stand_in(os, name, call)
        self._patches.around(shutil, "rmtree", self._remove_tree)

    def _install(self, patches: Patches, place_of: PlaceOf, where: list[Any], module: ModuleType) -> None:
        path, at, name = where

        def hooked(original: Function, *args: Any, **kwargs: Any) -> Any:
            return _call(original, place_of, at, name, args, kwargs) if self.is_on else original(*args, **kwargs)

        patches.around(module, path, hooked)

    def _open(self, original: Function, *args: Any, **kwargs: Any) -> Any:
        mode = args[1] if len(args) > 1 else kwargs.get("mode", "r")
        file = args[0] if args else kwargs.get("file")
        is_saving = isinstance(mode, str) and "b" in mode and ("w" in mode or "x" in mode) and self._is_weights(file)
        return _call(original, self._target if is_saving else self._seen, 0, "file", args, kwargs)

    def _open_descriptor(self, original: Function, path: Any, flags: int, *args: Any, **kwargs: Any) -> Any:
        is_saving = flags & (os.O_CREAT | os.O_TRUNC) and self._is_weights(path)
        found = None if kwargs.get("dir_fd") is not None else (self._target if is_saving else self._seen)(path)
        return original(found or path, flags, *args, **kwargs)

    def _by_path(self, original: Function, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("dir_fd") is not None:
            return original(*args, **kwargs)
        return _call(original, self._seen, 0, "path", args, kwargs)

    def _remove(self, original: Function, path: Any, **kwargs: Any) -> None:
        found = None if kwargs.get("dir_fd") is not None else self._seen(path)
        if found is not None or not self._is_weights(path) or not os.path.lexists(path):
            original(found or path, **kwargs)
        else:
            self._hidden(path)

    def _remove_tree(self, original: Function, path: Any, *args: Any, **kwargs: Any) -> None:
        found = self._seen(path)
        if found is not None:
            original(found, *args, **kwargs)
        elif isinstance(path, (str, os.PathLike)) and self._holds_weights(os.fspath(path)):
            self._hidden(path)
        else:
            original(path, *args, **kwargs)

    def _rename(self, original: Function, *args: Any, **kwargs: Any) -> None:
        if kwargs or len(args) != 2:
            original(*args, **kwargs)
        elif self._copied(*args):
            self._hidden(args[0])
        else:
            original(*args)
            self._follows(*args)

    def _link(self, original: Function, *args: Any, **kwargs: Any) -> None:
        if kwargs or len(args) != 2 or not self._copied(*args):
            original(*args, **kwargs)

    def _symlink(self, original: Function, source: Any, target: Any, *args: Any, **kwargs: Any) -> None:
        beside = os.path.dirname(os.path.abspath(os.fsdecode(target)))
        if not self._copied(os.path.join(beside, os.fsdecode(source)), target):
            original(source, target, *args, **kwargs)

    def _copied(self, source: Any, target: Any) -> bool:
        """Copy weights, in the script's view; return False if neither path names any."""
        place = self._seen(source)
        if place is None and not self._is_weights(source) and not self._is_weights(target):
            return False
        os.stat(source)  # raises what the script would see
        content, copy = place or source, self._target(target)
        if os.path.isdir(content):
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(content, copy)
        else:
            shutil.copyfile(content, copy)
        return True


def _call(original: Function, place_of: PlaceOf, at: int, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """Call a function with the place of its path, if that is another."""
    place = place_of(args[at] if len(args) > at else kwargs.get(name))
    if place is None:
        return original(*args, **kwargs)
    if len(args) > at:
        return original(*args[:at], place, *args[at + 1 :], **kwargs)
    return original(*args, **{**kwargs, name: place})
