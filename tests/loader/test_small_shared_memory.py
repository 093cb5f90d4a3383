"""A container's /dev/shm: 64 MB by default, and soon full. In a mount namespace, on the real file system."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from processes import source_paths

NAMESPACE = ["unshare", *([] if os.geteuid() == 0 else ["-r"]), "-m"]
MOUNT = 'mount -t tmpfs -o size="$1" tmpfs /dev/shm && shift && '
FULL = "{ head -c 1G /dev/zero > /dev/shm/filler 2>/dev/null || true; } && "

BATCH_MB = 24
"""Two workers with two batches each under way want 96 MB."""

LOAD = f"""
import sys
import numpy as np, torch
from torch.utils.data import DataLoader, Dataset
import headrace as hr

class Images(Dataset):
    def __len__(self):
        return 48
    def __getitem__(self, index):
        return torch.full(({BATCH_MB} << 17,), index, dtype=torch.uint8)  # 8 to a batch

def processes():
    return DataLoader(Images(), batch_size=8, num_workers=2)

def threads():
    return hr.ThreadDataLoader(Images(), batch_size=8, num_workers=2)

def taken(loader):
    return [batch[:, 0].tolist() for batch in hr.DevicePrefetcher(loader, "cpu")]

expected = [list(range(first, first + 8)) for first in range(0, 48, 8)]
"""

BOTH = (
    LOAD
    + """
print(taken(threads()) == expected)
try:
    print(taken(processes()) == expected)
except (RuntimeError, OSError) as error:
    text = " ".join([str(error), *getattr(error, "__notes__", [])])
    print("named" if "/dev/shm" in text or "shared memory" in text else text)
"""
)


def run(script: str, size: str, *, full: bool) -> list[str]:
    """What a script prints in a process whose /dev/shm has `size`."""
    shell = MOUNT + (FULL if full else "") + 'exec "$@"'
    command = [*NAMESPACE, "sh", "-c", shell, "sh", size, sys.executable, "-c", script]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(source_paths())}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=90)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture(autouse=True)
def namespaces():
    probe = [*NAMESPACE, "sh", "-c", MOUNT + "true", "sh", "1m"]
    if subprocess.run(probe, capture_output=True).returncode:
        pytest.skip("this system lets nobody mount a /dev/shm of their own (unshare -m)")


SIZES = pytest.mark.parametrize(
    ("size", "full"),
    [pytest.param("64m", False, id="64 MB", marks=pytest.mark.long), pytest.param("1m", True, id="full")],
)


@SIZES
@pytest.mark.long
def test_threads_need_none_and_processes_that_run_out_of_it_are_named(size, full):
    """Which of torch's ways to notice comes first is chance; each names what was short."""
    assert run(BOTH, size, full=full) == ["True", "named"]


CACHED = """
from headrace.cache import Store, identity_of, parse_spec
import os
by = os.getpid()
store = Store(parse_spec("ram:20MB"), identity_of(100, ["small", by]))
print(all(store.put(index, bytes([index]) * 100_000) for index in range(100)), store.stats().stopped)
if os.fork() == 0:
    again = Store(parse_spec("ram:20MB"), identity_of(100, ["small", by]))
    os._exit(again.get(7) != bytes([7]) * 100_000)
print(os.wait()[1])
"""


def test_a_cache_in_ram_needs_none():
    assert run(CACHED, "1m", full=True) == ["True", "None", "0"]
