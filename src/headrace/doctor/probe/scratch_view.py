"""The file system as a script sees it whose weights are saved, replaced and deleted in a scratch folder only."""

from __future__ import annotations

import os
import shutil
from typing import Any, Callable

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
