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
from typing import Any

from headrace.bench.measure import Run
from headrace.errors import HeadraceError
from headrace.tools.bench.settings import Settings

MOST_LINES = 30
COMMAND = (sys.executable, "-m", "headrace.tools.bench.runs")


def run_rounds(settings: Settings, *, command: Sequence[str] = COMMAND) -> Iterator[tuple[str, Run]]:
    """Yield (loader, run) as each finishes: headrace, torch, headrace, torch, …

    Raises HeadraceError with the worker's own last words where one fails.
    """
    for round_number in range(settings.rounds):
        for loader in settings.loaders:
            yield loader, Run(**one_run(settings, loader, round_number, command=command))


def one_run(
    settings: Settings, loader: str, round_number: int, *, command: Sequence[str] = COMMAND, only_check: bool = False
) -> dict[str, Any]:
    """What one worker found; nothing with `only_check`, where it takes a first batch and no more.

    Raises HeadraceError with the worker's own last words where it fails.
    """
    task = {"loader": loader, "round": round_number, "parent": os.getpid(), "only_check": only_check}
    task["settings"] = asdict(settings)
    found: dict[str, Any] = json.loads(_output([*command, json.dumps(task)], loader))
    return found


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
        raise HeadraceError(_last_words(loader, process.returncode, errors.strip().splitlines()))
    return output.splitlines()[-1]


def _last_words(loader: str, status: int, lines: list[str]) -> str:
    """Of a loader of the user's all that it said, up to `MOST_LINES`: they know how to read it."""
    last = lines[-1] if lines else "it said nothing"
    if loader != "yours":
        return f"the {loader} run ended with exit code {status}: {last}"
    if last.startswith("--against "):
        return last
    return "\n".join([f"the run of your loader ended with exit code {status}: {last}", *lines[-MOST_LINES:-1]])


def _end_group(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):  # all of it may have ended by itself
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
