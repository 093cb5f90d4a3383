"""Python processes of the command that have torch, and in which no probe runs; and why."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headrace.doctor.attach import proc
from headrace.doctor.attach.environment import FOLDER_VARIABLE, SITE
from headrace.doctor.attach.process_tree import Descendants

TORCH = "libtorch_python"
OLDEST = (3, 9)
MOST_SECONDS_BETWEEN = 16.0


@dataclass(frozen=True)
class Missed:
    """A Python process of the command that imported torch, and in which no probe ran."""

    pid: int
    command: list[str]
    why: str


class Unreached:
    """Looks at each process until it has evidence or torch; more and more rarely, since reading what it has mapped
    makes it wait. A probe begins its file before torch is loaded, so one that has torch and no file has no probe,
    unless it is a fork of one that has, and has had nothing to write."""

    def __init__(self, evidence: Path, *, now: Callable[[], float] = time.monotonic) -> None:
        self._evidence = evidence
        self._now = now
        self._next: dict[int, tuple[float, float]] = {}
        self._reached_commands: set[tuple[str, ...]] = set()
        self.reached: set[int] = set()
        self.missed: dict[int, Missed] = {}

    def look(self, descendants: Descendants) -> None:
        now = self._now()
        self._note_reached(descendants)
        for pid in descendants.live.keys() - self.reached - self.missed.keys():
            at, pause = self._next.get(pid, (now, 0.1))
            if at <= now:
                self._next[pid] = (now + pause, min(2 * pause, MOST_SECONDS_BETWEEN))
                self._judge(pid)

    def _note_reached(self, descendants: Descendants) -> None:
        written = {int(file.name.rsplit("-", 2)[1]) for file in self._evidence.glob("*-*-*.jsonl")}
        for pid in written.intersection(descendants.live) - self.reached:
            self.reached.add(pid)
            self.missed.pop(pid, None)
            self._reached_commands.add(tuple(proc.arguments(pid)))

    def _judge(self, pid: int) -> None:
        maps = proc.maps(pid)
        arguments = proc.arguments(pid)
        if TORCH not in maps or not arguments:
            return
        why = self._why(pid, arguments, maps)
        if why is None and tuple(arguments) in self._reached_commands:
            self.reached.add(pid)
        else:
            self.missed[pid] = Missed(pid, arguments, why or "for no reason that can be seen from outside")

    def _why(self, pid: int, arguments: list[str], maps: str) -> str | None:
        environment = proc.environment(pid)
        option = ignoring_option(arguments)
        if option is not None:
            return f"it was started with -{option}, so that Python runs no sitecustomize of ours"
        if (version := _python(maps)) is not None and version < OLDEST:
            return f"its Python {version[0]}.{version[1]} is older than {OLDEST[0]}.{OLDEST[1]}"
        if environment is None:
            return "its environment cannot be read"
        if FOLDER_VARIABLE not in environment:
            return f"its environment was scrubbed: {FOLDER_VARIABLE} is not set"
        if str(SITE) not in environment.get("PYTHONPATH", "").split(os.pathsep):
            return "its PYTHONPATH was replaced by one without the probe's folder"
        return self._failure(pid)

    def _failure(self, pid: int) -> str | None:
        try:
            text = (self._evidence / f"failed-{pid}.txt").read_text(errors="replace")
        except OSError:
            return None
        return f"its probe failed to start: {text.strip().splitlines()[-1]}"


def ignoring_option(arguments: list[str]) -> str | None:
    """Which of -I, -E and -S a Python's command line gives it, None if none."""
    options = iter(arguments[1:])
    for argument in options:
        if argument == "--check-hash-based-pycs":
            next(options, None)
            continue
        if argument.startswith("--") and len(argument) > 2:
            continue
        if not argument.startswith("-") or argument in {"-", "--"}:
            return None
        for at, letter in enumerate(argument[1:], 1):
            if letter in "IES":
                return letter
            if letter in "cm":  # what follows is the program
                return None
            if letter in "WX":
                if at + 1 == len(argument):
                    next(options, None)
                break
    return None


def _python(maps: str) -> tuple[int, int] | None:
    """Its version, by the folder that torch was loaded from."""
    found = re.search(rf"/python(\d)\.(\d+)/\S*{TORCH}", maps)
    return None if found is None else (int(found[1]), int(found[2]))
