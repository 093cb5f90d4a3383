"""What is in a folder, told by reading all of it, and the diffs that the doctor writes, as people apply them there."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from pathlib import Path

Tree = dict[str, tuple[str, ...]]


def tree(root: Path) -> Tree:
    """Each entry below it with its kind and mode; files with a hash of their content, and like folders with their
    time; links with their target."""
    return {"": _said(root), **{str(path.relative_to(root)): _said(path) for path in root.rglob("*")}}


def _said(path: Path) -> tuple[str, ...]:
    status = path.lstat()
    mode = stat.filemode(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return (mode, os.readlink(path))
    if not stat.S_ISREG(status.st_mode):
        return (mode, str(status.st_mtime_ns))
    return (mode, str(status.st_mtime_ns), str(status.st_size), hashlib.sha256(path.read_bytes()).hexdigest())


def project(root: Path) -> Path:
    """A folder with what a training script may meet there. All is older than today."""
    for name, content in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (root / "link.txt").symlink_to("notes.txt")
    (root / "latest").symlink_to("runs/first", target_is_directory=True)
    (root / "run.sh").chmod(0o750)
    for path in sorted([root, *root.rglob("*")], reverse=True):
        os.utime(path, ns=(OLD_NS, OLD_NS + len(path.name)), follow_symlinks=False)
    return root


OLD_NS = 1_600_000_000_123_456_789
FILES = {
    "notes.txt": b"notes of before\n",
    "train.log": b"epoch 1\nepoch 2\n",
    "last.ckpt": b"weights of weeks",
    "best.ckpt": b"the best of them",
    "run.sh": b"#!/bin/sh\n",
    "table.bin": bytes(range(256)),
    "runs/first/events": b"one",
    "runs/first/deep/more": b"two",
    "runs/second/events": b"three",
}


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
