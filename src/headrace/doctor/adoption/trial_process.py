"""Process of a trial: runs the module of a Loader on the run's own files, and measures its batches.

It reads `LoaderTrialRequest` from a file of the trial's folder, and replaces another by its answers so far: the current
phase (`at`), the measurements (`measured`), or the reason for a failure (`failed`). Nothing is pickled.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from headrace.doctor.adoption.comparison import kind_of, leaves, verified
from headrace.doctor.explain.look import Look, read_look

IMPORTS, OPENING, FIRST, COMPARING, ALONE, ALONGSIDE = (
    "importing", "opening the data", "making the first batch", "comparing samples", "making batches",
    "making batches alongside a step",
)  # fmt: skip
"""Phases of a trial, in order."""
MODULE = "headrace_adopted_loader"
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


MODULE_FILE, REQUEST, ANSWERS = "headrace_adopted_loader.py", "request.json", "answers.json"
"""Files of the trial's folder."""


@dataclass(frozen=True)
class LoaderTrialRequest:
    """Request of a trial: the module, and the run that it replaces."""

    module: str
    look: str = ""
    """File of the look with the samples to compare; empty for none."""
    arguments: Mapping[str, int] = field(default_factory=dict)
    """Arguments of the module: the places of the look's calls that stand in for live objects of the script."""
    interpreters: Sequence[str] = (sys.executable,)
    """Python interpreters to run it in, best first; the next is used if one lacks headrace."""
    paths: Sequence[str] = ()
    """Folders of the script's own modules."""
    cores: int | None = None
    """Cores for the run's rank; None for all."""
    step_us: Sequence[float] = (0.0, 0.0)
    """Computing and waiting of one training step."""
    team: int = 1
    """Threads that compute a step together."""
    batches_a_step: int = 1
    most_s: float = 15.0
    """Time limit of each stage."""
    most_bytes: int | None = None
    """Memory limit; None for a share of the memory available at the start."""
    alone_s: float = 2.0
    alongside_s: float = 4.0


def end_with_doctor() -> None:
    """Ensure that this process and its children end with the doctor, for whatever reason.

    A separate process waits for standard input to close, which only the doctor holds open, and kills the group. A
    thread could not while a library holds the GIL, and the kernel's parent-death signal would end this process but not
    its children.
    """
    if os.getpgrp() != os.getpid() or os.fork():
        return
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGKILL)


class TrainingStandIn:
    """Simulated training steps that use the cores like the real ones: same threads, computing time and waits.

    A step is a number of work units, not a duration, so competition for the cores makes it longer.
    """

    def __init__(self, order: LoaderTrialRequest) -> None:
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

    def step(self, parts: int = 1) -> None:
        """Compute and wait for a step, or for one of its equal parts."""
        for _ in range(round(self._pieces / parts)):
            self._piece()
        if self._wait_s:
            time.sleep(self._wait_s / parts)

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


def module_of(order: LoaderTrialRequest, folder: Path) -> Any:
    """Import the module from its file, with the script's folders last on the path."""
    sys.path += [path for path in order.paths if path not in sys.path]
    spec = importlib.util.spec_from_file_location(MODULE, folder / MODULE_FILE)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[MODULE] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stand_in_of(look: Look, place: int) -> Callable[[Any], Any]:
    """Return a callable for the rows that the look's callable made. Other texts give zeros, after the same time."""
    call = look.calls[place]
    rows = {look.columns[call.column][index]: row for index, row in call.rows.items()}
    length = len(next(iter(rows.values())))

    def answer(given: Any) -> Any:
        texts = [given] if isinstance(given, str) else given
        until = time.perf_counter() + len(texts) * call.text_us / 1e6
        made = [rows.get(text, [0] * length) for text in texts]
        while time.perf_counter() < until:
            pass
        return made[0] if isinstance(given, str) else made

    return answer


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


def turns_us(turn: Callable[[], Any], seconds: float) -> list[float]:
    """Repeat turns for `seconds`, or twice as long if there are few, and return their times without the first ones."""
    began = time.monotonic()
    taken: list[float] = []
    while len(taken) < MOST_BATCHES:
        passed = time.monotonic() - began
        if passed > 2 * seconds or (passed > seconds and len(taken) >= LEAST_BATCHES + SETTLING):
            break
        taken.append(_timed_us(turn))
    return taken[SETTLING:] if len(taken) > 2 * SETTLING else taken[len(taken) // 3 :]


def measure(order: LoaderTrialRequest, folder: Path, say: Callable[..., None]) -> None:
    """Run the module: make its loader, and take batches alone, then alongside simulated training steps."""
    if order.cores is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: max(order.cores, 1)])
    module = module_of(order, folder)
    import torch  # noqa: F401  # before the Loader's own time counts

    say(at=OPENING)
    began = time.monotonic()
    look = read_look(Path(order.look)) if order.look else None
    given = {name: stand_in_of(look, place) for name, place in order.arguments.items() if look is not None}
    make_loader = partial(module.make_loader, **given)
    loader = make_loader()
    say(at=FIRST)
    batches = endless(module, loader)
    found: dict[str, Any] = {"leaves": {path: kind_of(leaf) for path, leaf in leaves(next(batches))}}
    found["first_us"] = (time.monotonic() - began) * 1e6
    say(at=COMPARING)
    compared = {} if look is None else verified(look, make_loader, module.batches)
    say(at=ALONE)
    used, counted, size = cpu_s(), 0, int(getattr(loader, "batch_size", 1))

    def take() -> None:
        nonlocal counted
        next(batches)
        counted += 1

    found |= {"batch_us": turns_us(take, order.alone_s), "batch_size": size, "verified": compared}
    found["cpu_us"] = (cpu_s() - used) / counted * 1e6
    say(at=ALONGSIDE, measured=found | {"threads": _threads(loader), "samples": counted * size})
    stand_in = TrainingStandIn(order)

    def train() -> None:
        for _ in range(order.batches_a_step):  # at once, they would empty a queue that the step's own time fills
            take()
            stand_in.step(order.batches_a_step)

    found |= {"loaded_us": turns_us(train, order.alongside_s), "stand_in_us": stand_in.step_us}
    say(measured=found | {"threads": _threads(loader), "samples": counted * size}, whole=True)


def _threads(loader: Any) -> int:
    return int(getattr(loader, "threads", 1))


def main() -> None:
    folder, answers = Path(sys.argv[1]), dict[str, Any]()

    def say(**answer: Any) -> None:
        answers.update(answer)
        written = folder / f"{ANSWERS}.new"
        written.write_text(json.dumps(answers), encoding="utf-8")
        written.replace(folder / ANSWERS)

    end_with_doctor()
    try:
        measure(LoaderTrialRequest(**json.loads((folder / REQUEST).read_bytes())), folder, say)
    except BaseException as error:
        lines = "".join(traceback.format_exception(error)).rstrip().splitlines()
        say(failed="\n".join(lines[-LAST_LINES:]))
    os._exit(0)  # no orderly end is needed for a loader's threads and processes
