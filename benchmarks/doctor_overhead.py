"""What does `headrace doctor --observe` cost a training run, a step?

    python benchmarks/doctor_overhead.py [--step-ms 1 5 20 50] [--workers 0 2] [--rounds 5] [--seconds 16]
    python benchmarks/doctor_overhead.py --in-turns [--step-ms 1 5 20 50] [--workers 0 2] [--rounds 5]

The run is paced_training.py beside this file: its device is simulated by a sleep, so that a step has a set length and
the CPU is free meanwhile, as it is beside a GPU. Runs with the doctor and without it take turns, each a process of its
own. A row says, over the rounds:

    step      mean step without the doctor
    wall      what the doctor adds to the mean step: the median, the smallest and the largest of the rounds
    thread    what it adds to the training thread's CPU time a step: the sleep's own jitter is not in it
    own       what the doctor's report of that very run says that it cost
    share     `wall`, of the step

Processes differ by 0.1 ms a step among themselves, whatever they run. --in-turns has no such difference: in one
process, loops without the probe, while it observes, and after that, take turns, each of 64 steps after 64 that are left
out. The machine is not sampled beside. Where that is too noisy, too: doctor_instructions.py counts.
"""

import json
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from unittest import mock

import paced_training
from harness import HEADRACE, arguments, in_turns

from headrace.doctor.causes import diagnose
from headrace.doctor.probe.hooks import attach
from headrace.doctor.probe.probe import Probe
from headrace.doctor.probe.settings import ProbeSettings, boot_id
from headrace.doctor.probe.training import state
from headrace.doctor.session.storage import decode_session

TURN_STEPS, FOR_GOOD = 64, 1 << 30


@contextmanager
def probe_attached(observed_steps):
    """Attach the probe to this process, as --observe would; yield a list that gets its own cost of each step, in µs."""
    own_us = []
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(state, "OBSERVED_STEPS", observed_steps):
        times = (time.monotonic_ns() // 1000, time.time_ns() // 1000)
        settings = ProbeSettings(folder, *times, boot_id(), observe=True)
        settings.write()
        probe = Probe(settings)
        attach(probe)
        try:
            yield own_us
        finally:
            probe.detach()
        lines = (line for file in Path(settings.evidence).iterdir() for line in file.read_text().splitlines())
        own_us += [record[5] / 10 for record in map(json.loads, lines) if record[0] == "step"]


def compare(step_ms, workers, args):
    steps = min(max(256, round(args.seconds * 1000 / step_ms)), 1024)
    command = [sys.executable, paced_training.__file__, *map(str, (step_ms, workers, steps))]

    def figures(*prefix):
        ran = subprocess.run([*prefix, *command], check=True, capture_output=True, text=True)
        return json.loads(next(line for line in ran.stdout.splitlines() if line.startswith("[")))

    def observed():
        with tempfile.TemporaryDirectory() as folder:
            session = Path(folder, "session.json")
            found = figures(*HEADRACE, "doctor", "--observe", "--json", str(session), "--")
            return *found, diagnose(decode_session(session.read_bytes())).cost.step_us

    runs = in_turns({"without": figures, "observed": observed}, args.rounds)
    pairs = list(zip(runs["without"], runs["observed"], strict=True))
    added, thread = ([after[at] - before[at] for before, after in pairs] for at in (0, 1))
    step, wall, own = median(before[0] for before, _ in pairs), median(added), median(each[2] for _, each in pairs)
    print(
        f"{step_ms:4g} ms {workers:3d} workers {step:9.0f} us {wall:+8.0f} us ({min(added):+.0f} to {max(added):+.0f}) "
        f"{median(thread):+8.0f} us {own:8.0f} us {wall / step:+8.2%}",
        flush=True,
    )


def compare_in_turns(step_ms, workers, args):
    def mean_us():
        wall, _ = paced_training.train(step_ms / 1000, workers, paced_training.WARM_UP + TURN_STEPS)
        return paced_training.usual(wall[paced_training.WARM_UP :])

    def observed(steps):
        with probe_attached(steps) as own_us:
            found = mean_us()
        return found, median(own_us)

    turns = {"measured": partial(observed, FOR_GOOD), "let pass": partial(observed, paced_training.WARM_UP // 2)}
    runs = in_turns({"without": mean_us, **turns}, args.rounds)
    without = runs.pop("without")
    added = {
        name: median(each - bare for (each, _), bare in zip(rounds, without, strict=True))
        for name, rounds in runs.items()
    }
    own = median(each for _, each in runs["measured"])
    print(
        f"{step_ms:4g} ms {workers:3d} workers {median(without):9.0f} us, measured {added['measured']:+6.0f} us "
        f"(own {own:.0f}), let pass {added['let pass']:+6.0f} us",
        flush=True,
    )


def main():
    seconds = {"type": float, "default": 16.0, "help": "of each run, within 256 and 1,024 steps"}
    args = arguments(__doc__, step_ms=[1.0, 5.0, 20.0, 50.0], workers=[0, 2], rounds=5, seconds=seconds, in_turns=False)
    for workers in args.workers:
        for step_ms in args.step_ms:
            (compare_in_turns if args.in_turns else compare)(step_ms, workers, args)


if __name__ == "__main__":
    main()
