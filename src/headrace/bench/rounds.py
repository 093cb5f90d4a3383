"""Runs the workers in turn, Headrace and the peer after each other in every round, each in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict

from ..errors import HeadraceError
from .measure import Run
from .settings import Settings

LOADERS = ("headrace", "torch")
COMMAND = (sys.executable, "-m", "headrace.bench.worker")


def run_rounds(settings: Settings, *, command: Sequence[str] = COMMAND) -> Iterator[tuple[str, Run]]:
    """Yield (loader, run) as each finishes: headrace, torch, headrace, torch, …

    Raises HeadraceError with the worker's own last words where one fails.
    """
    for round_number in range(settings.rounds):
        for loader in LOADERS:
            task = {"loader": loader, "round": round_number, "parent": os.getpid()}
            task["settings"] = asdict(settings)
            yield loader, Run(**json.loads(_output([*command, json.dumps(task)], loader)))


def _output(command: list[str], loader: str) -> str:
    """Run a worker in a process group of its own, which is ended with it however this call is left."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        output, errors = process.communicate()
    finally:
        _end_group(process)
    if process.returncode != 0:
        last = errors.strip().splitlines()[-1:] or ["it said nothing"]
        raise HeadraceError(f"the {loader} run ended with exit code {process.returncode}: {last[0]}")
    return output.splitlines()[-1]


def _end_group(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):  # all of it may have ended by itself
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
