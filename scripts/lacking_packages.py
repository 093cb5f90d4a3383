"""pytest plugin: what fails for want of a package that only the tests need is skipped, and says which.

For environments that cannot have all of them: torch has no build for every Python that a wheel is built for.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

_PROJECT = tomllib.loads((Path(__file__).parent / "pyproject.toml").read_text())["project"]
_MODULES = {"opencv_python_headless": "cv2"}


def _names(requirements: list[str]) -> set[str]:
    distributions = {re.match(r"[\w.-]+", requirement)[0].replace("-", "_") for requirement in requirements}
    return {_MODULES.get(name, name) for name in distributions}


ONLY_TESTS = _names([*_PROJECT["optional-dependencies"]["torch"], *_PROJECT["optional-dependencies"]["dev"]])


def _lacking(error: BaseException | None) -> str | None:
    """The package whose absence made `error`, where only tests need it."""
    while error is not None:
        name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
        if name in ONLY_TESTS:
            return name
        error = error.__cause__ or error.__context__
    return None


def _skip_lacking(report: Any, call: pytest.CallInfo[Any] | None) -> None:
    name = _lacking(call.excinfo.value) if call is not None and call.excinfo is not None else None
    if report.failed and name is not None:
        report.outcome = "skipped"
        report.longrepr = (str(report.nodeid), 0, f"Skipped: needs {name}, which is not installed")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _skip_lacking(report, getattr(report, "call", None))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _skip_lacking(report, call)
    return report
