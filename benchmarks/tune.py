"""How near `headrace tune` comes to an exhaustive search over its own grid, and in how much of its time.

    python benchmarks/tune.py [--cases decode storage collate burning epochs] [--steps 60] [--rounds 1] [--duels 3]

Each case is a training whose batches and steps sleep and compute for set times (tests/doctor/cases/paced_loader.py).
It is tuned; then every setting of the grid is run for as many steps by the same means, `--rounds` times over; then
tune's choice and the fastest of the grid are run in turn, `--duels` times each, since the fastest of many noisy runs is
flattered by its noise. Printed are the medians of these, choice over best, and tune's time over that of one round of
the grid.

It wants a machine without other work. The targets: a ratio of at most 1.05, in at most 0.25 of the time.
"""

import argparse
import contextlib
import io
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from headrace.doctor.prove.baseline import DIGESTS
from headrace.doctor.prove.settings import arguments
from headrace.doctor.prove.trial import TrialRequest, attempt
from headrace.doctor.report.outputs import Outputs
from headrace.doctor.session.storage import session_folder
from headrace.doctor.tuning import tune

TESTS = Path(__file__).parent.parent / "tests" / "doctor"
CASES = {
    "decode": ["--workers", 0, "--burn", 30, "--vary", 0.3, "--device", 20],
    "storage": ["--workers", 1, "--sleep", 60, "--burn", 2, "--vary", 0.5, "--device", 15],
    "collate": ["--workers", 2, "--burn", 12, "--rare", 12, "--floats", 1_000_000, "--device", 15],
    "burning": ["--workers", 6, "--burn", 15, "--vary", 0.3, "--device", 0, "--train", 20],
    "epochs": ["--workers", 2, "--burn", 15, "--device", 15, "--length", 30],
}
"""CPU-heavy decoding without workers; storage that sleeps; light samples with a collate that is heavy now and then, and
large batches; a training thread that burns a core beside too many workers; workers started anew in each short epoch."""
MOST_S = 120.0


def command(case):
    return [sys.executable, str(TESTS / "cases" / "paced_loader.py"), *map(str, CASES[case])]


def step_ms(case, like, wanted, steps):
    """Mean measured step with these arguments; None where the run came to nothing."""
    ahead = wanted.in_flight  # made before the first step, as tune leaves them out
    order = TrialRequest({"loaders": {"0": wanted.changes()}}, steps + ahead, MOST_S)
    trial = attempt(command(case), like, order)
    return statistics.fmean(trial.steps[ahead:]) / 1e3 if trial.why == "measured" else None


def searched(case, like, grid, steps, rounds):
    """Mean step of each setting over the rounds, and the seconds of one round."""
    found = {one: [] for one in grid}
    began = time.monotonic()
    for _ in range(rounds):
        for one in grid:
            if (step := step_ms(case, like, one, steps)) is not None:
                found[one].append(step)
    seconds = (time.monotonic() - began) / rounds
    return {one: statistics.fmean(measured) for one, measured in found.items() if measured}, seconds


def duel(case, like, pair, steps, times):
    """Median step of each of two settings, run in turn."""
    found = {one: [] for one in pair}
    for _ in range(times):
        for one in found:
            found[one].append(step_ms(case, like, one, steps))
    return [statistics.median([step for step in found[one] if step is not None]) for one in pair]


def compare(case, steps, rounds, duels):
    with contextlib.redirect_stderr(io.StringIO()):
        result = tune(command(case), Outputs(), steps=steps)
        with session_folder(digests=DIGESTS) as folder:
            grid, seconds = searched(case, folder.settings, [arguments(**one) for one, _ in result.grid], steps, rounds)
            best, choice = min(grid, key=grid.get), arguments(**result.choice)
            own_ms, best_ms = duel(case, folder.settings, (choice, best), steps, duels)
    ratio = own_ms / best_ms
    print(f"{case:8}  tune: {choice} in {len(result.runs)} runs, {result.seconds:.0f} s   {own_ms:6.1f} ms")
    print(f"{'':8}  grid: {best} of {len(grid)} settings, {seconds:.0f} s   {best_ms:6.1f} ms")
    print(f"{'':8}  step {ratio:.3f} of the best, time {result.seconds / seconds:.3f} of the grid's", flush=True)
    return ratio, result.seconds / seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--duels", type=int, default=3)
    known = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), str(TESTS / "cases"), *sys.path])
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        found = [compare(case, known.steps, known.rounds, known.duels) for case in known.cases]
        os.chdir("/")
    ratios, times = zip(*found, strict=True)
    print(f"worst: step {max(ratios):.3f} of the best, time {max(times):.3f} of the grid's")


if __name__ == "__main__":
    main()
