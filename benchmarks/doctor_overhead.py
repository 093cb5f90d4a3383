"""What does `headrace doctor --observe` cost a training run, a step?

    python benchmarks/doctor_overhead.py [--step-ms 1 5 20 50] [--workers 0 2] [--rounds 5] [--seconds 16]
    python benchmarks/doctor_overhead.py --in-turns [--step-ms 1 5 20 50] [--workers 0 2] [--rounds 5]
    python benchmarks/doctor_overhead.py --instructions [--steps 100] [--workers 0 2]

The run is paced_training.py beside this file: its device is simulated by a sleep, so that a step has a set length and
the CPU is free meanwhile, as it is beside a GPU. Runs with the doctor and without it take turns, each a process of its
own and each pair in the other order than the one before. A row says, over the rounds:

    step      mean step without the doctor
    wall      what the doctor adds to the mean step: the median, the smallest and the largest of the rounds
    thread    what it adds to the training thread's CPU time a step: the sleep's own jitter is not in it
    own       what the doctor's report of that very run says that it cost
    share     `wall`, of the step

Processes differ by 0.1 ms a step among themselves, whatever they run. --in-turns has no such difference: in one
process, the probe is put into the loop and taken out of it by turns, each of 512 steps after a first block that is left
out. The machine is not sampled beside. `in full` is the same where the probe lets no steps pass.

--instructions counts, by `valgrind --tool=callgrind`, the instructions that a step takes in the training process with
the probe and without it: the difference of two runs of different length, so that neither start nor end is in it. A
count does not depend on what else the machine does. Under valgrind all takes some fifty times as long, though, so that
what the probe does by the clock (looks at lines, writing what it holds back) falls on fewer steps: an upper bound.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import paced_training

from headrace.doctor.analyse.analysis import diagnose
from headrace.doctor.attach.environment import environment
from headrace.doctor.probe.clock import boot_id
from headrace.doctor.probe.probe import Probe
from headrace.doctor.probe.rests import Rests
from headrace.doctor.probe.settings import Settings
from headrace.doctor.session.document import decode

TRAINING = Path(__file__).with_name("paced_training.py")
FEWEST_STEPS, MOST_STEPS = 256, 1024
TURN = 512
"""Steps."""
DOCTOR = [sys.executable, "-c", "import sys; from headrace.cli import main; sys.argv[0] = 'headrace'; main()", "doctor"]


@dataclass(frozen=True)
class Pair:
    """One round: the same run without the doctor and with it."""

    step_us: float
    added_us: float
    added_cpu_us: float
    own_us: float | None


def paired(step_ms: float, workers: int, steps: int, *, doctor_first: bool) -> Pair:
    with tempfile.TemporaryDirectory() as folder:
        session = Path(folder) / "session.json"
        observed = [*DOCTOR, "--observe", "--json", str(session), "--"]
        figures = {}
        for prefix in (observed, []) if doctor_first else ([], observed):
            out = Path(folder) / "figures.json"
            command = [*prefix, sys.executable, str(TRAINING), str(step_ms), str(workers), str(steps), str(out)]
            subprocess.run(command, check=True, capture_output=True)
            figures[bool(prefix)] = json.loads(out.read_text())
        with_it, without = figures[True], figures[False]
        return Pair(
            step_us=without["wall_us"],
            added_us=with_it["wall_us"] - without["wall_us"],
            added_cpu_us=with_it["cpu_us"] - without["cpu_us"],
            own_us=own_cost_us(session),
        )


def own_cost_us(session: Path) -> float | None:
    """A step's cost by the doctor's own accounting."""
    return diagnose(decode(session.read_bytes())).cost.step_us


def compare(step_ms: float, workers: int, rounds: int, seconds: float) -> None:
    steps = min(max(FEWEST_STEPS, round(seconds * 1000 / step_ms)), MOST_STEPS)
    pairs = [paired(step_ms, workers, steps, doctor_first=bool(number % 2)) for number in range(rounds)]
    added = [pair.added_us for pair in pairs]
    step = statistics.median(pair.step_us for pair in pairs)
    wall = statistics.median(added)
    thread = statistics.median(pair.added_cpu_us for pair in pairs)
    own = statistics.median(pair.own_us for pair in pairs if pair.own_us is not None)
    print(
        f"{step_ms:4g} ms {workers:3d} workers {step:9.0f} us {wall:+8.0f} us ({min(added):+.0f} to {max(added):+.0f}) "
        f"{thread:+8.0f} us {own:8.0f} us {wall / step:+8.2%}",
        flush=True,
    )


def in_turns(step_ms: float, workers: int, rounds: int) -> None:
    added = statistics.median(_added_us(step_ms, workers) for _ in range(rounds))
    with mock.patch.object(Rests, "after", return_value=0):
        full = statistics.median(_added_us(step_ms, workers) for _ in range(rounds))
    print(f"{step_ms:4g} ms {workers:3d} workers {added:+8.0f} us {full:+8.0f} us in full", flush=True)


def _added_us(step_ms: float, workers: int) -> float:
    """To the mean step: one turn with the probe and one without it."""
    with tempfile.TemporaryDirectory() as folder, probe_in(Path(folder)):
        with_it = _mean_us(step_ms, workers)
    return with_it - _mean_us(step_ms, workers)


def _mean_us(step_ms: float, workers: int) -> float:
    wall, _ = paced_training.train(step_ms / 1000, workers, paced_training.WARM_UP + TURN)
    return paced_training.usual(wall[paced_training.WARM_UP :])


@contextmanager
def probe_in(folder: Path) -> Iterator[None]:
    """Puts the probe into this process, as --observe would."""
    settings = observing(folder)
    settings.write()
    probe = Probe(settings)
    probe.attach()
    try:
        yield
    finally:
        probe.detach()


def observing(folder: Path) -> Settings:
    origin_us, wall_us = time.monotonic_ns() // 1000, time.time_ns() // 1000
    return Settings(str(folder), origin_us, wall_us, boot_id(), observe=True)


def instructions(steps: int, workers: int, environment: Mapping[str, str]) -> int:
    """Of the training process, start and end included."""
    callgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    command = [*callgrind, sys.executable, str(TRAINING), "0", str(workers), str(steps)]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    main_process = re.findall(r"==(\d+)== Callgrind", ran.stderr)[0]
    counted = re.search(rf"=={main_process}== Collected : (\d+)", ran.stderr)
    assert counted is not None, ran.stderr
    return int(counted[1])


def instructions_a_step(steps: int, workers: int, environment: Mapping[str, str]) -> float:
    return (instructions(4 * steps, workers, environment) - instructions(steps, workers, environment)) / (3 * steps)


def count(steps: int, workers: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        observing(Path(folder)).write()
        without = instructions_a_step(steps, workers, os.environ)
        with_it = instructions_a_step(steps, workers, environment(Path(folder), os.environ))
    print(
        f"{workers} workers: {without:,.0f} instructions a step without the probe, {with_it:,.0f} with it: "
        f"{with_it - without:+,.0f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step-ms", type=float, nargs="+", default=[1, 5, 20, 50])
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=16.0, help="of each run, within 256 and 1,024 steps")
    parser.add_argument("--in-turns", action="store_true")
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--steps", type=int, default=100, help="of the shorter run with --instructions")
    known = parser.parse_args()
    for workers in known.workers:
        if known.instructions:
            count(known.steps, workers)
            continue
        for step_ms in known.step_ms:
            if known.in_turns:
                in_turns(step_ms, workers, known.rounds)
                continue
            compare(step_ms, workers, known.rounds, known.seconds)


if __name__ == "__main__":
    main()
