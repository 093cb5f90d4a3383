"""pytest plugin: what fails for want of a package that only the tests need is skipped, and says which.

For environments that cannot have all of them: torch has no build for every Python that a wheel is built for.
"""

from __future__ import annotations

import importlib.util
import re
import tomllib
from collections.abc import Generator
from pathlib import Path

import pytest

_EXTRAS = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
_MODULES = {"opencv-python-headless": "cv2"}  # of the requirements that are imported by another name than their own
_LACKING = {
    module
    for requirement in [*_EXTRAS["torch"], *_EXTRAS["dev"]]
    for module in re.findall(r"^\w+", _MODULES.get(requirement, requirement))
    if importlib.util.find_spec(module) is None
}
_SAYS_SO = re.compile(r"No module named '(\w+)|(\w+) is not installed")


def _skip_what_lacks(report: pytest.CollectReport | pytest.TestReport) -> None:
    """Failures name the package as Python does or as headrace does, also those of processes that a test started."""
    named = {name for pair in _SAYS_SO.findall(report.longreprtext) for name in pair} & _LACKING
    if report.failed and named:
        report.outcome = "skipped"
        report.longrepr = (report.nodeid, 0, f"Skipped: needs {min(named)}, which is not installed")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _skip_what_lacks(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _skip_what_lacks(report)
    return report
