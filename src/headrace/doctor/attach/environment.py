"""The environment variables that carry the probe into a command's processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

SITE = Path(__file__).parent / "site"
"""Holds the sitecustomize.py that must come first on PYTHONPATH."""
FOLDER_VARIABLE = "HEADRACE_DOCTOR"
"""Names the session's folder; without it the sitecustomize does nothing."""


def environment(folder: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """`inherited` with the probe in it. Where PYTHONPATH was set, all that it held follows unchanged."""
    paths = [str(SITE), *filter(None, [inherited.get("PYTHONPATH")])]
    return {**inherited, FOLDER_VARIABLE: str(folder.absolute()), "PYTHONPATH": os.pathsep.join(paths)}
