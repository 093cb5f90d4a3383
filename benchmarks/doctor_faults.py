"""What do the hooks for faults of the data add to a training step, and how long does `headrace check` take?

    python benchmarks/doctor_faults.py [--step-ms 50] [--rounds 3]

The first line is of the run of paced_training.py in this process, on batches of 8 images of 224 x 224, which the
training thread makes itself: then all that the hooks do falls into its steps. A pass has 128 steps, of which the hooks
digest the first two batches. Their CPU time, which other programs hardly change, is compared with the step's length:
the median of the rounds.

The second line is of the whole command `headrace check` on a script that reads 60 PNGs and takes steps of
that length, from start to exit: the median of the rounds, and the same without the doctor up to its first step.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import paced_training
import torch
from doctor_overhead import TURN, observing
from PIL import Image

from headrace.doctor.probe.hooks import attach
from headrace.doctor.probe.hooks.batch_making import _FetchHook
from headrace.doctor.probe.look.digests import FirstBatchDigests
from headrace.doctor.probe.look.first_batches import ModelInputs
from headrace.doctor.probe.probe import Probe
from headrace.tools.demo_dataset import natural_image

STEPS = paced_training.WARM_UP + TURN
"""Of a pass."""
FILES = 60
CHECK = [sys.executable, "-c", "from headrace.tools.command_line import main; main()", "check"]
SCRIPT = """
import sys, time
from pathlib import Path
import numpy as np, torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

class Photos(Dataset):
    def __init__(self):
        self.files = sorted(map(str, Path(sys.argv[1]).glob("*.png")))
    def __len__(self):
        return len(self.files)
    def __getitem__(self, index):
        pixels = np.asarray(Image.open(self.files[index]).resize((64, 64)))
        return torch.from_numpy((pixels / 255 - 0.5) / 0.5).float(), index % 3

model = torch.nn.Linear(64 * 64 * 3, 3)
optimizer = torch.optim.SGD(model.parameters(), 1e-6)
for _ in range(int(sys.argv[3])):
    for images, labels in DataLoader(Photos(), batch_size=4, shuffle=True, num_workers=2):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images.flatten(1)), labels).backward()
        time.sleep(float(sys.argv[2]))
        optimizer.step()
"""


class Images(paced_training.Samples):
    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.sample = torch.rand(3 * 224 * 14, 16)


def added_ms(step_ms: float) -> float:
    """Return the milliseconds that the hooks for faults take in one pass."""
    with tempfile.TemporaryDirectory() as folder, _timed() as spent_s:
        settings = replace(observing(Path(folder)), observe=False)
        settings.write()
        probe = Probe(settings)
        attach(probe)
        try:
            paced_training.train(step_ms / 1000, 0, STEPS, samples=Images)
        finally:
            probe.detach()
    if len(spent_s) < STEPS:
        raise RuntimeError(f"expected a call of the hooks for each of {STEPS} steps, got {len(spent_s)}")
    return sum(spent_s) * 1000


@contextmanager
def _timed() -> Iterator[list[float]]:
    """Time all calls of the hooks for faults, in seconds."""
    spent: list[float] = []

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            begun = time.thread_time()
            try:
                return function(*args)
            finally:
                spent.append(time.thread_time() - begun)

        return call

    hooks = [(_FetchHook, "first"), (FirstBatchDigests, "end"), (ModelInputs, "called")]
    patched = [mock.patch.object(kind, name, timed(getattr(kind, name))) for kind, name in hooks]
    for one in patched:
        one.start()
    try:
        yield spent
    finally:
        for one in patched:
            one.stop()


def check_s(step_ms: float, *prefix: str, epochs: int) -> float:
    """Return the seconds that the script takes behind a prefix."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(FILES):
            Image.fromarray(natural_image(96, 72, seed=number)).save(f"{folder}/{number:02}.png")
        script = Path(folder, "train.py")
        script.write_text(SCRIPT)
        begun = time.perf_counter()
        command = [*prefix, sys.executable, str(script), folder, str(step_ms / 1000), str(epochs)]
        subprocess.run(command, check=True, capture_output=True)
        return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step-ms", type=float, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    known = parser.parse_args()
    added = statistics.median(added_ms(known.step_ms) for _ in range(known.rounds))
    share = added / (STEPS * known.step_ms)
    print(f"{added:.2f} ms a pass of {STEPS} steps of {known.step_ms:g} ms: {share:.2%} of a step", flush=True)
    checks = (check_s(known.step_ms, *CHECK, "--", epochs=1000) for _ in range(known.rounds))
    check = statistics.median(checks)
    alone = statistics.median(check_s(known.step_ms, epochs=1) for _ in range(known.rounds))
    print(f"headrace check of a script of {FILES} files: {check:.1f} s; its first epoch alone: {alone:.1f} s")


if __name__ == "__main__":
    main()
