"""The diffs that the doctor writes, as people apply them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def patch(folder: Path, diff: str) -> None:
    """`patch -p1` in a folder, of a diff that lies there; line ends stay as they are."""
    command = ["patch", "-p1", "--binary", "-i", diff]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def git_apply(folder: Path, diff: str) -> None:
    """`git apply` in a folder that need be no repository."""
    command = ["git", "apply", "--whitespace=nowarn", diff]
    environment = {"PATH": os.environ["PATH"], "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr
