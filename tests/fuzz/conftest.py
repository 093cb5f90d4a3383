"""Fuzz tests are ordinary tests; with HEADRACE_FUZZ_SECONDS they go on for so long, with new examples all the time.

These are seconds of this process's CPU time, whatever else the machine does, and each test has an equal share of them.
What Hypothesis has found then stays in .cache/fuzz/python. A test is of made-up input: fuzzed_files.py,
fuzzed_manifests.py and fuzzed_sidecars.py make it, near enough to the real thing to get past the first check.
"""

from __future__ import annotations

import os
import time
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

SECONDS = float(os.environ.get("HEADRACE_FUZZ_SECONDS", "0"))
_RUNS: Counter[str] = Counter()
_CPU_S: Counter[str] = Counter()

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
    """Round after round until the test's share is over."""
    if SECONDS <= 0:
        return None
    handle = pyfuncitem.obj.hypothesis
    property_holds = handle.inner_test

    def counted(*args: object, **kwargs: object) -> None:
        _RUNS[pyfuncitem.name] += 1
        property_holds(*args, **kwargs)

    handle.inner_test = counted
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    share = SECONDS / len(pyfuncitem.session.items)
    began = time.process_time()
    try:
        while time.process_time() < began + share:
            pyfuncitem.obj(**arguments)
    finally:
        _CPU_S[pyfuncitem.name] = time.process_time() - began
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, runs in _RUNS.items():
        terminalreporter.write_line(f"{name:<45} {_CPU_S[name]:6.0f} s of CPU {runs:12d} runs")
    if len(_RUNS) > 1:
        terminalreporter.write_line(f"{'all':<45} {_CPU_S.total():6.0f} s of CPU {_RUNS.total():12d} runs")
