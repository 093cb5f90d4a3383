"""Where in the user's own code a hook was reached."""

from __future__ import annotations

import os
import sys
import sysconfig
from types import FrameType

_PATHS = sysconfig.get_paths()
_NOT_THE_USERS = tuple(
    os.path.join(path, "")
    for path in {
        _PATHS["stdlib"],
        _PATHS["platstdlib"],
        _PATHS["purelib"],
        _PATHS["platlib"],
        os.path.dirname(__file__),
    }
)
PACKAGES = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
"""In the paths of packages of whatever environment: this one may have another behind it."""


def is_users(path: str) -> bool:
    """Tell whether a file of code is none of the standard library's, of an installed package's or of this probe's."""
    return not path.startswith((*_NOT_THE_USERS, "<frozen")) and not any(part in path for part in PACKAGES)


def call_site() -> tuple[str | None, int | None]:
    """File and line of the innermost caller outside the standard library, installed packages and this probe; of the
    outermost one, where there is none."""
    frame: FrameType | None = sys._getframe(1)
    place: tuple[str | None, int | None] = (None, None)
    while frame is not None:
        place = (frame.f_code.co_filename, frame.f_lineno)
        if is_users(frame.f_code.co_filename):
            return place
        frame = frame.f_back
    return place
