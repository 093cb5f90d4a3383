"""Processes that fork, and end, while the probe's thread looks at them: as they would without it."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest
from probed import run_probed

LOADER = """
import os, sys, threading
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, key):
        return work(key)

def probes():
    return [thread for thread in threading.enumerate() if thread.name.startswith("headrace")]

def load():
    return [float(key) for batch in DataLoader(Numbers(), 2) for key in batch]
"""
WHOLE = "[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]\n"

FORKS = """
work = int
def say():
    os.write(1, f"{load()}\\n".encode())  # in one write: two processes share the pipe
say()
assert probes()
child = os.fork()
assert probes() == []
say()
if child == 0:
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert status == 0
"""

ENDS_IN_A_BATCH = """
begun = threading.Event()
def work(key):
    begun.set()
    threading.Event().wait()
threading.Thread(target=load, daemon=True).start()
begun.wait()
print("ends")
"""


@pytest.mark.parametrize(
    ("source", "out"),
    [pytest.param(FORKS, 3 * WHOLE, marks=pytest.mark.long), (ENDS_IN_A_BATCH, "ends\n")],
    ids=["forks", "ends in a batch"],
)
@pytest.mark.long
def test_a_process_ends_as_it_would(tmp_path: Path, source: str, out: str) -> None:
    """Warnings are errors there, such as that of a fork beside threads."""
    command = [sys.executable, "-W", "error", "-c", LOADER + textwrap.dedent(source)]
    ran = run_probed(command, tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, out, "")
    assert '"hook-off"' not in "".join(path.read_text() for path in (tmp_path / "evidence").iterdir())
