"""What does `headrace doctor --observe` cost a training run, a step?

    python benchmarks/doctor_overhead.py [--step-ms 1 5 20 50] [--workers 0 2] [--rounds 5] [--seconds 16]
    python benchmarks/doctor_overhead.py --in-turns [--step-ms 1 5 20 50] [--workers 0 2] [--rounds 5]

The run is paced_training.py beside this file: its device is simulated by a sleep, so that a step has a set length and
the CPU is free meanwhile, as it is beside a GPU. Runs with the doctor and without it take turns, each a process of its
own and each pair in the other order than the one before. A row says, over the rounds:

    step      mean step without the doctor
    wall      what the doctor adds to the mean step: the median, the smallest and the largest of the rounds
    thread    what it adds to the training thread's CPU time a step: the sleep's own jitter is not in it
    own       what the doctor's report of that very run says that it cost
    share     `wall`, of the step

Processes differ by 0.1 ms a step among themselves, whatever they run. --in-turns has no such difference: in one
process, loops without the probe, while it observes, and after that, take turns, each of 64 steps after 64 that are left
out. The machine is not sampled beside. Where that is too noisy, too: doctor_instructions.py counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import paced_training

from headrace.doctor.causes import diagnose
from headrace.doctor.probe.hooks import attach
from headrace.doctor.probe.probe import Probe
from headrace.doctor.probe.settings import ProbeSettings, boot_id
from headrace.doctor.probe.training import state as observation
from headrace.doctor.session.storage import decode_session

TRAINING = Path(__file__).with_name("paced_training.py")
FEWEST_STEPS, MOST_STEPS = 256, 1024
TURN = 64
"""Steps."""
FOR_GOOD = 1 << 30
DOCTOR = [
    sys.executable,
    "-c",
    "import sys; from headrace.tools.command_line import main; sys.argv[0] = 'headrace'; main()",
    "doctor",
]


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
    return diagnose(decode_session(session.read_bytes())).cost.step_us


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
    without, full, rest, own = [], [], [], []
    for _ in range(rounds):
        without.append(_mean_us(step_ms, workers))
        with _observed(FOR_GOOD), _probe_in() as spent:
            full.append(_mean_us(step_ms, workers) - without[-1])
        own.append(statistics.median(spent))
        with _observed(paced_training.WARM_UP // 2), _probe_in():
            rest.append(_mean_us(step_ms, workers) - without[-1])
    added, let = statistics.median(full), statistics.median(rest)
    print(
        f"{step_ms:4g} ms {workers:3d} workers {statistics.median(without):9.0f} us, measured {added:+6.0f} us "
        f"(own {statistics.median(own):.0f}), let pass {let:+6.0f} us",
        flush=True,
    )


def _mean_us(step_ms: float, workers: int) -> float:
    wall, _ = paced_training.train(step_ms / 1000, workers, paced_training.WARM_UP + TURN)
    return paced_training.usual(wall[paced_training.WARM_UP :])


def _observed(steps: int) -> AbstractContextManager[Any]:
    """Observe so many steps."""
    return mock.patch.object(observation, "OBSERVED_STEPS", steps)


@contextmanager
def _probe_in() -> Iterator[list[float]]:
    """Puts the probe into this process, as --observe would. Gives what it says of its cost: microseconds a step."""
    spent: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        settings = observing(Path(folder))
        settings.write()
        probe = Probe(settings)
        attach(probe)
        try:
            yield spent
        finally:
            probe.detach()
        records = _records(Path(settings.evidence))
        spent += [record[5] / 10 for record in records if record[0] == "step"]


def _records(evidence: Path) -> list[list[Any]]:
    """All records of all processes."""
    return [json.loads(line) for file in evidence.iterdir() for line in file.read_text().splitlines()]


def observing(folder: Path) -> ProbeSettings:
    origin_us, wall_us = time.monotonic_ns() // 1000, time.time_ns() // 1000
    return ProbeSettings(str(folder), origin_us, wall_us, boot_id(), observe=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step-ms", type=float, nargs="+", default=[1, 5, 20, 50])
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=16.0, help="of each run, within 256 and 1,024 steps")
    parser.add_argument("--in-turns", action="store_true")
    known = parser.parse_args()
    for workers in known.workers:
        for step_ms in known.step_ms:
            if known.in_turns:
                in_turns(step_ms, workers, known.rounds)
                continue
            compare(step_ms, workers, known.rounds, known.seconds)


if __name__ == "__main__":
    main()
