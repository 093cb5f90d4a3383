"""Run a file of DataLoader's own tests, of PyTorch or torchdata, with ThreadDataLoader in its place.

    python dataloader_suite.py test_dataloader.py OUT.json [PATTERN]

Writes how each test ended, by its class and name: "passed", "skipped", or the last line of what it raised.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import types
import unittest
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, TypeVar

TEST_S = 60
"""A test that takes longer hangs."""


class Outcomes(unittest.TestResult):
    """Outcome of each test, as one line."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[str, str] = {}

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802  # unittest's names
        super().startTest(test)
        self.of[_id(test)] = "passed"
        signal.alarm(TEST_S)

    def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        signal.alarm(0)
        super().stopTest(test)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        self.of[_id(test)] = "skipped"

    def addError(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        self.of[_id(test)] = f"{err[0].__name__}: {' '.join(str(err[1]).split())[:400]}"

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:  # noqa: N802
        if err is not None:
            self.addError(test, err)

    addFailure = addError  # noqa: N815


def _id(test: unittest.TestCase) -> str:
    return f"{type(test).__name__}.{test._testMethodName}"


def _replace() -> None:
    """ThreadDataLoader wherever the file imports its DataLoader from."""
    import torch.utils.data

    from headrace import ThreadDataLoader

    torch.utils.data.DataLoader = ThreadDataLoader  # type: ignore[misc]
    if importlib.util.find_spec("torchdata") is not None:
        import torchdata.stateful_dataloader

        T = TypeVar("T", covariant=True)

        class Exact(ThreadDataLoader[T]):
            """StatefulDataLoader's argument of its own left out: the state is exact after every batch."""

            def __init__(self, *args: Any, snapshot_every_n_steps: int = 1, **options: Any) -> None:
                super().__init__(*args, **options)

        torchdata.stateful_dataloader.StatefulDataLoader = Exact  # type: ignore[misc]
    # torchdata's repository has a helper of its own tests in a package of that name.
    package = types.ModuleType("test")
    package.__path__ = [str(Path(sys.argv[1]).resolve().parents[1])]
    sys.modules["test"] = package


def _overdue(*ignored: object) -> None:
    raise TimeoutError(f"took longer than {TEST_S} s")


def load(path: Path) -> types.ModuleType:
    _replace()
    spec = importlib.util.spec_from_file_location("others", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["others"] = module
    spec.loader.exec_module(module)
    return module


def run(path: Path, pattern: str) -> dict[str, str]:
    module = load(path)
    signal.signal(signal.SIGALRM, _overdue)
    outcomes = Outcomes()
    for kind in [getattr(module, name) for name in dir(module)]:
        if isinstance(kind, type) and issubclass(kind, unittest.TestCase) and kind.__module__ == "others":
            for test in unittest.defaultTestLoader.loadTestsFromTestCase(kind):
                if fnmatch(_id(test), pattern):
                    test(outcomes)
                    print(_id(test), outcomes.of.get(_id(test)), flush=True)
    return outcomes.of


if __name__ == "__mp_main__":  # a process that a test spawns unpickles what is in the file
    load(Path(sys.argv[1]))

if __name__ == "__main__":
    found = run(Path(sys.argv[1]), sys.argv[3] if len(sys.argv) > 3 else "*")
    Path(sys.argv[2]).write_text(json.dumps(found, indent=1, sort_keys=True))
    os._exit(0)  # what hangs in a thread of a failed test is not waited for
