"""Commands that change files, run as a measured one is, in this process."""

from __future__ import annotations

import os
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attach_runs import IMPATIENT
from file_trees import Tree, project, tree

from headrace.doctor.attach.command import CommandResult, run_command
from headrace.doctor.attach.hands_off import Notes
from headrace.doctor.probe.settings import ProbeSettings, boot_id


def settings(session: Path) -> ProbeSettings:
    """Of a measured run; written."""
    made = ProbeSettings(
        folder=str(session),
        origin_us=time.monotonic_ns() // 1000,
        origin_wall_us=time.time_ns() // 1000,
        boot_id=boot_id(),
        scratch=str(session / "scratch"),
    )
    made.write()
    return made


class Runs:
    """A project, its tree before, and the folder of the session beside it."""

    def __init__(self, folder: Path) -> None:
        self.root = project(folder / "project")
        self.session = folder / "session"
        self.before: Tree = tree(self.root)

    def run(self, source: str, *arguments: str, keep: bool = False) -> CommandResult:
        """Runs Python source in the project."""
        return self.command([sys.executable, "-c", textwrap.dedent(source), *arguments], keep=keep)

    def command(self, command: list[str], *, keep: bool = False) -> CommandResult:
        return undone_run(command, self.root, self.session, keep=keep)

    @property
    def now(self) -> Tree:
        return tree(self.root)


def undone_run(command: list[str], root: Path, session: Path, *, keep: bool = False) -> CommandResult:
    """Runs it in that folder."""
    with working_in(root):
        return run_command(command, settings(session), relay=True, patience=IMPATIENT, keep_written=keep)


def put_back(ended: CommandResult) -> Notes:
    """Of a run that succeeded."""
    assert ended.status == 0, ended.last_lines
    return ended.put_back


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
