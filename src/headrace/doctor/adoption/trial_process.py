"""Process of a trial: runs the module of a Loader on the run's own files, and measures its batches.

It reads one line of JSON from standard input (`TrialOrder`), and writes lines of JSON to standard output: the current
phase (`at`), the measurements so far (`measured`), or the reason for a failure (`failed`). Nothing is pickled. Output
of the module or a library goes to standard error.

When standard input closes because the doctor has ended, the whole process group is killed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from headrace.doctor.adoption.comparison import kind_of, leaves, verified
from headrace.doctor.explain.look import read_look

IMPORTS, OPENING, FIRST, COMPARING, ALONE, ALONGSIDE = (
    "importing", "opening the data", "making the first batch", "comparing samples", "making batches",
    "making batches alongside a step",
)  # fmt: skip
"""Phases of a trial, in order."""
MODULE = "headrace_adopted_loader"
"""Name of the module during the trial."""
MOST_BATCHES = 2_000
LEAST_BATCHES = 4
"""Number of batches in a phase below which it may take twice its time."""
SETTLING = 4
"""Batches, or steps, from a queue that was full at the start of a phase."""
STAND_IN_STEPS = 6
"""Steps of the simulated training that are measured without a loader."""
WARM_S = 0.1
SIDE, VALUES = 160, 1 << 18
"""Sizes of the multiplied matrices and added vectors: training both computes and uses memory bandwidth."""
LAST_LINES = 6
"""Lines of a traceback that are reported."""


@dataclass(frozen=True)
class TrialOrder:
    module: str
    """File of the module."""
    look: str = ""
    """File of the look with the samples to compare; empty for none."""
    paths: list[str] = field(default_factory=list)
    """Folders in which the module finds the script's own modules."""
    cores: int | None = None
    """Cores for the run's rank; None for all."""
    alone_s: float = 2.0
    alongside_s: float = 4.0
    step_us: tuple[float, float] = (0.0, 0.0)
    """Computing and waiting of one training step."""
    team: int = 1
    """Threads that compute a step together."""
    batches_a_step: int = 1


class Answers:
    """Writer of JSON lines to the original standard output; all prints go to standard error from now on."""

    def __init__(self) -> None:
        self._file: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def say(self, **answer: Any) -> None:
        self._file.write(json.dumps(answer) + "\n")
        self._file.flush()


def end_with_doctor() -> None:
    """Ensure that this process and its children end with the doctor, for whatever reason.

    A separate process waits for standard input to close, which only the doctor holds open, and kills the group. A
    thread could not while a library holds the GIL, and the kernel's parent-death signal would end this process but not
    its children.
    """
    if os.getpgrp() != os.getpid() or os.fork():
        return
    for descriptor in (1, 2):
        os.close(descriptor)  # otherwise nobody would see the end of the trial
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGKILL)


class TrainingStandIn:
    """Simulated training steps that use the cores like the real ones: same threads, computing time and waits.

    A step is a number of work units, not a duration, so competition for the cores makes it longer.
    """

    def __init__(self, order: TrialOrder) -> None:
        import torch

        self._torch = torch
        compute_us, wait_us = order.step_us
        torch.set_num_threads(max(order.team, 1))
        self._matrix = torch.rand(SIDE, SIDE)
        self._sum = torch.zeros(VALUES)
        self._addend = torch.rand(VALUES)
        self._wait_s = wait_us / 1e6
        piece_us = self._piece_us()  # its threads have started by now
        self._pieces = round(compute_us / piece_us)
        took = [_timed_us(self.step) for _ in range(STAND_IN_STEPS)][1:]
        self.step_us = sorted(took)[len(took) // 2]
        """Median step without a loader."""

    def step(self) -> None:
        for _ in range(self._pieces):
            self._piece()
        if self._wait_s:
            time.sleep(self._wait_s)

    def _piece(self) -> None:
        self._torch.mm(self._matrix, self._matrix)
        self._torch.add(self._sum, self._addend, out=self._sum)

    def _piece_us(self) -> float:
        """Return the undisturbed time of a work unit, once the threads have started."""
        until = time.monotonic() + WARM_S
        taken: list[float] = []
        while time.monotonic() < until or len(taken) < SETTLING:
            taken.append(_timed_us(self._piece))
        return sorted(taken)[len(taken) // 4]


def _timed_us(call: Callable[[], Any]) -> float:
    began = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - began) / 1000


def cpu_s() -> float:
    """Return the CPU time of this process and its descendants."""
    import psutil

    own = os.times()
    total = own.user + own.system + own.children_user + own.children_system
    for child in psutil.Process().children(recursive=True):
        try:
            times = child.cpu_times()
        except psutil.Error:  # it has ended
            continue
        total += times.user + times.system
    return total


def module_of(order: TrialOrder) -> Any:
    """Import the module from its file, with the script's folders last on the path."""
    sys.path += [path for path in order.paths if path not in sys.path]
    spec = importlib.util.spec_from_file_location(MODULE, order.module)
    if spec is None or spec.loader is None:
        raise ImportError(f"expected a Python file, got {order.module}")
    module = sys.modules[MODULE] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def endless(module: Any, loader: Any) -> Iterator[Any]:
    """Yield batches in the script's form, epoch after epoch."""
    batches = getattr(module, "batches", iter)
    while True:
        count = 0
        for batch in batches(loader):
            count += 1
            yield batch
        if not count:
            raise ValueError("expected batches, got an epoch without any")


@dataclass
class PhaseTimes:
    """Microseconds of each turn of a phase, without the first ones."""

    turns: list[float]

    @classmethod
    def of(cls, turn: Callable[[], Any], seconds: float) -> PhaseTimes:
        """Repeat turns for `seconds`, or twice as long if there are few."""
        began = time.monotonic()
        taken: list[float] = []
        while len(taken) < MOST_BATCHES:
            passed = time.monotonic() - began
            if passed > 2 * seconds or (passed > seconds and len(taken) >= LEAST_BATCHES + SETTLING):
                break
            taken.append(_timed_us(turn))
        return cls(taken[SETTLING:] if len(taken) > 2 * SETTLING else taken[len(taken) // 3 :])


def measure(order: TrialOrder, say: Callable[..., None]) -> None:
    """Run the module: make its loader, and take batches alone, then alongside simulated training steps."""
    say(at=IMPORTS)
    if order.cores is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: max(order.cores, 1)])
    module = module_of(order)
    import torch  # noqa: F401  # before the Loader's own time counts

    say(at=OPENING)
    began = time.monotonic()
    loader = module.make_loader()
    say(at=FIRST)
    batches = endless(module, loader)
    made = {path: kind_of(leaf) for path, leaf in leaves(next(batches))}
    first_us = (time.monotonic() - began) * 1e6
    say(at=COMPARING)
    compared = verified(read_look(Path(order.look)), module.make_loader, module.batches) if order.look else {}
    say(at=ALONE)
    used = cpu_s()
    counted = 0

    def take() -> None:
        nonlocal counted
        next(batches)
        counted += 1

    alone = PhaseTimes.of(take, order.alone_s)
    found: dict[str, Any] = {
        "batch_us": alone.turns,
        "cpu_us": (cpu_s() - used) / counted * 1e6,
        "first_us": first_us,
        "threads": int(getattr(loader, "threads", 1)),
        "batch_size": int(getattr(loader, "batch_size", 1)),
        "samples": counted * int(getattr(loader, "batch_size", 1)),
        "leaves": made,
        "verified": compared,
    }
    say(measured=found)
    say(at=ALONGSIDE)
    stand_in = TrainingStandIn(order)

    def train() -> None:
        for _ in range(max(order.batches_a_step, 1)):
            take()
        stand_in.step()

    loaded = PhaseTimes.of(train, order.alongside_s)
    found |= {"loaded_us": loaded.turns, "stand_in_us": stand_in.step_us, "threads": int(getattr(loader, "threads", 1))}
    found["samples"] = counted * found["batch_size"]
    say(measured=found, whole=True)


def main() -> None:
    line = b""
    while not line.endswith(b"\n"):  # by descriptor: buffered input would never reach the watching process
        piece = os.read(0, 65536)
        if not piece:
            os._exit(1)
        line += piece
    given = json.loads(line)
    order = TrialOrder(**given | {"step_us": tuple(given["step_us"])})
    end_with_doctor()
    answers = Answers()
    try:
        measure(order, answers.say)
    except BaseException as error:
        lines = "".join(traceback.format_exception(error)).rstrip().splitlines()
        answers.say(failed="\n".join(lines[-LAST_LINES:]))
    os._exit(0)  # no orderly end is needed for a loader's threads and processes
