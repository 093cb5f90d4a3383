"""Commands run as the doctor runs them, in this process or in one that a test can send signals to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from processes import DEADLINE_S, source_paths

from headrace.doctor.attach.command import OUTPUT, CommandResult, run_command
from headrace.doctor.attach.process_tree import Patience
from headrace.doctor.probe.settings import ProbeSettings, boot_id
from headrace.tools.bench.runs import tree

IMPATIENT = Patience(grace_s=0.05, terminate_s=5.0, kill_s=5.0)
"""Long enough for what ends when told, no grace to speak of for what does not."""

DOCTOR = """
import json, sys, msgspec
from attach_runs import IMPATIENT
from headrace.tools.bench.runs import tree
from headrace.doctor.attach.command import run_command as run
from headrace.doctor.probe.settings import ProbeSettings as Settings

folder, *command = sys.argv[1:]
ended = run(command, Settings.read(folder), patience=IMPATIENT)
print("ended", json.dumps(msgspec.to_builtins(ended)), flush=True)
sys.exit(ended.status)
"""


def begin_session(folder: Path, *, observe: bool = True) -> ProbeSettings:
    """Of a run that nobody ends but itself, or of one that is only measured."""
    origin_us, wall_us = time.monotonic_ns() // 1000, time.time_ns() // 1000
    settings = ProbeSettings(str(folder), origin_us, wall_us, boot_id(), observe=observe)
    settings.write()
    return settings


def observed(command: list[str], folder: Path, *, hides: bool = False, **options: Any) -> CommandResult:
    """Run a command as it is, or with its output in a file."""
    options.setdefault("patience", IMPATIENT)
    return run_command(command, begin_session(folder), output=folder / OUTPUT if hides else None, **options)


def python(source: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(source), *arguments]


@contextmanager
def doctor(
    command: list[str], folder: Path, *, observe: bool = True, **options: Any
) -> Iterator[subprocess.Popen[str]]:
    """In a process, and a session, of its own. Whatever a test does, nothing of it is left."""
    begin_session(folder, observe=observe)
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("start_new_session", True)
    paths = os.pathsep.join([*source_paths(), str(Path(__file__).parent)])
    call = [sys.executable, "-c", DOCTOR, str(folder), *command]
    process = subprocess.Popen(call, text=True, env=os.environ | {"PYTHONPATH": paths}, **options)
    try:
        yield process
    finally:
        for pid in tree(process.pid) if process.poll() is None else []:
            os.kill(pid, signal.SIGKILL)
        process.wait()
        for file in filter(None, (process.stdin, process.stdout)):
            file.close()


def ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What such a doctor says in the end."""
    assert process.stdout is not None
    line = next(line for line in process.stdout if line.startswith("ended "))
    said: dict[str, Any] = json.loads(line.removeprefix("ended "))
    assert process.wait(DEADLINE_S) == said["status"]
    return said


def evidence(folder: Path) -> dict[int, list[list[Any]]]:
    """The records of each process, by pid."""
    files = sorted((folder / "evidence").glob("*.jsonl"))
    by_file = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
    return {records[0][2]["pid"]: records for records in by_file}


def records(folder: Path, kind: str) -> list[list[Any]]:
    """Those of one kind, of all processes."""
    return [record for process in evidence(folder).values() for record in process if record[0] == kind]


def stub_torch(site: Path) -> Path:
    """A package by the name of torch that takes no time to import, and is mapped like the real one."""
    package = site / "torch"
    package.mkdir(parents=True)
    (package / "libtorch_python.so").write_bytes(b"\0" * 4096)
    (package / "__init__.py").write_text(STUB)
    return site


STUB = """
import mmap, os, types

with open(os.path.join(os.path.dirname(__file__), "libtorch_python.so"), "rb") as _file:
    _mapped = mmap.mmap(_file.fileno(), 0, access=mmap.ACCESS_READ)
__version__ = "0.stub"
version = types.SimpleNamespace(cuda=None)
__config__ = types.SimpleNamespace(parallel_info=lambda: "ATen/Parallel:\\n\\tomp_get_max_threads() : 3\\n")
cuda = types.SimpleNamespace(is_initialized=lambda: False)

def get_num_threads():
    return 3

def get_num_interop_threads():
    return 2
"""
