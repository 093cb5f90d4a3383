"""The diffs that the doctor writes, as people apply them."""

from __future__ import annotations

import subprocess
from pathlib import Path


def patch(folder: Path, diff: str) -> None:
    """`patch -p1` in a folder, of a diff that lies there; line ends stay as they are."""
    command = ["patch", "-p1", "--binary", "-i", diff]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr
