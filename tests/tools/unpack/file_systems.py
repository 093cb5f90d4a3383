"""A file system that has no O_TMPFILE, as a stand-in for network and older ones."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest


def without_unnamed_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening one fails as it does there."""
    real = os.open

    def opening(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return real(path, flags, *args, **options)

    monkeypatch.setattr(os, "open", opening)
