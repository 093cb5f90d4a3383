"""What other programs do while a remedy is tried."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from machine_double import Texts

from headrace.doctor.prove.trial import Others, used_s

TICKS = os.sysconf("SC_CLK_TCK")


def stat(busy_s: float, idle_s: float) -> str:
    user, idle = round(busy_s * TICKS), round(idle_s * TICKS)
    return f"cpu {user} 0 0 {idle} 0 0 0 0\ncpu0 {user} 0 0 {idle} 0 0 0 0\n"


@pytest.mark.parametrize(("used", "others"), [(4.0, 0.5), (0.0, 0.9), (12.0, 0.0)])
def test_others_are_what_is_busy_beside_our_own(used: float, others: float) -> None:
    """Of 10 s, the only core was busy for 9."""
    machine, times, own = Texts({"/proc/stat": stat(100, 100)}), iter([50.0, 60.0]), iter([7.0, 7.0 + used])
    found = Others(machine, times.__next__, own.__next__)
    machine.texts["/proc/stat"] = stat(109, 101)
    assert found.cores() == pytest.approx(others)


def test_a_machine_that_does_not_tell() -> None:
    times = iter([50.0, 60.0])
    assert Others(Texts(), times.__next__, lambda: 0.0).cores() is None


def test_our_own_are_those_that_were_waited_for() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    before = used_s()
    process = subprocess.Popen([sys.executable, "-c", burn])
    process.wait()
    assert used_s() - before >= 0.25
