"""Fuzz tests are ordinary tests; with HEADRACE_FUZZ_SECONDS each goes on for so long, with new examples all the time.

What Hypothesis has found then stays in .cache/fuzz/python. A target is a test of made-up input; fuzzed_sidecars.py
shows how to make it: near enough to the real thing to get past the first check.
"""

from __future__ import annotations

import os
import time

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

SECONDS = float(os.environ.get("HEADRACE_FUZZ_SECONDS", "0"))
_RUNS: dict[str, int] = {}

if SECONDS > 0:
    settings.register_profile(
        "fuzz",
        deadline=None,
        derandomize=False,
        max_examples=2000,  # a round
        database=DirectoryBasedExampleDatabase(".cache/fuzz/python"),
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("fuzz")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Round after round until the time is over; then the number of runs is told at the end."""
    if SECONDS <= 0:
        return None
    handle = pyfuncitem.obj.hypothesis
    property_holds = handle.inner_test

    def counted(*args: object, **kwargs: object) -> None:
        _RUNS[pyfuncitem.name] = _RUNS.get(pyfuncitem.name, 0) + 1
        property_holds(*args, **kwargs)

    handle.inner_test = counted
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        pyfuncitem.obj(**arguments)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, runs in _RUNS.items():
        terminalreporter.write_line(f"{name}: {runs} runs")
