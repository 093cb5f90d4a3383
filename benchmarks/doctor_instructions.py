"""How many instructions does the probe of `headrace doctor --observe` add to a training step?

    python benchmarks/doctor_instructions.py [--steps 2000] [--workers 0 2] [--remote]

Counted by `valgrind --tool=callgrind` in the training process alone, from a step to a later one, so that neither start
nor end is in it: without the probe, while it
observes, and after that. A count does not depend on what else the machine
does. Under valgrind all takes some fifty times as long, though, so that what the probe does by the clock (looks at
lines, writing what it holds back) falls on fewer steps: an upper bound. Runs differ by some thousands a step.
With --remote, each of a step's 8 samples is a request to a store.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import paced_training
from doctor_overhead import FOR_GOOD, observing

from headrace.doctor.probe.hooks import attach
from headrace.doctor.probe.probe import Probe
from headrace.doctor.probe.training import state as observation

OBSERVED = {"measured": FOR_GOOD, "let pass": 50}
"""Steps that are observed."""
UNCOUNTED = 100
"""Steps: until then observation has ended, if it does, and all that is made once is there."""


def train(state: str, workers: int, steps: int, samples: str) -> None:
    """What is counted, from the end of step UNCOUNTED on."""
    kind = getattr(paced_training, samples)
    if state == "without":
        paced_training.train(0, workers, UNCOUNTED + steps, counting(steps), kind)
        return
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(observation, "OBSERVED_STEPS", OBSERVED[state]):
        settings = observing(Path(folder))
        settings.write()
        probe = Probe(settings)
        attach(probe)
        paced_training.train(0, workers, UNCOUNTED + steps, counting(steps), kind)
        probe.detach()


def counting(steps: int) -> Callable[[int], None]:
    """Return what begins the count, and ends it after so many steps."""
    switches = {UNCOUNTED: "--instr=on", UNCOUNTED + steps: "--instr=off"}

    def after_step(number: int) -> None:
        if number in switches:
            command = ["callgrind_control", switches[number], str(os.getpid())]
            subprocess.run(command, check=True, capture_output=True)

    return after_step


def instructions_a_step(state: str, workers: int, steps: int, samples: str) -> float:
    """Of the training process."""
    callgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--callgrind-out-file=/dev/null"]
    command = [*callgrind, sys.executable, __file__, "--train", state, str(workers), str(steps), samples]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    main_process = re.findall(r"==(\d+)== Callgrind", ran.stderr)[0]
    counted = re.search(rf"=={main_process}== Collected : (\d+)", ran.stderr)
    assert counted is not None, ran.stderr
    return int(counted[1]) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000, help="that are counted")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2])
    parser.add_argument("--remote", action="store_true", help="each sample is a request to a store")
    parser.add_argument("--train", nargs=4, help=argparse.SUPPRESS)
    known = parser.parse_args()
    if known.train:
        train(known.train[0], int(known.train[1]), int(known.train[2]), known.train[3])
        return
    samples = "StoredSamples" if known.remote else "Samples"
    for workers in known.workers:
        without = instructions_a_step("without", workers, known.steps, samples)
        added = {state: instructions_a_step(state, workers, known.steps, samples) - without for state in OBSERVED}
        print(f"{workers} workers: {without:,.0f} instructions a step without the probe", end="")
        print("".join(f", {count:+,.0f} where it is {state}" for state, count in added.items()), flush=True)


if __name__ == "__main__":
    main()
