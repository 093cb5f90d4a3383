"""Tells when the first module is imported that the probe has something to do with.

It is all that runs in a Python that imports none of them, so it imports next to nothing itself: not even typing.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from typing import Any, Callable

    from .imports import ImportWatch

MODULES = frozenset(
    (
        "PIL.Image",
        "albumentations.core.transforms_interface",
        "cv2",
        "h5py._hl.dataset",
        "h5py._hl.files",
        "h5py._hl.group",
        "imageio.v2",
        "imageio.v3",
        "lmdb",
        "numpy",
        "tokenizers",
        "torch",
        "transformers.image_processing_utils",
        "transformers.tokenization_utils_base",
    )
)
"""Those that are hooked and need no other of them. Python's own come later: any program imports some, and they are
hooked wherever they have been imported by then."""


class Trigger:
    """Put on `sys.meta_path`, once; a finder that finds nothing by itself."""

    def __init__(self, start: Callable[[], ImportWatch | None]) -> None:
        """`start` begins what watches imports from then on; None where it could not."""
        self._start = start

    def attach(self) -> bool:
        """False, and nothing done, where one of the modules is there already."""
        if not MODULES.isdisjoint(sys.modules):
            return False
        sys.meta_path.insert(0, self)
        return True

    def detach(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname not in MODULES or self not in sys.meta_path:
            return None
        self.detach()
        watch = self._start()
        return None if watch is None else watch.find_spec(fullname, path, target)
