"""Workers of pytest-xdist that import and collect a test file when they are to run it, instead of all files first."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def garbage_stays() -> Iterator[None]:
    """Collect no garbage while modules and items are made: all of them stay.

    Nor does a later collection look through them, and through all of torch: tests and the leak fixture often collect.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


class WholeFile(pytest.Item):
    """A test file as one item, which runs the tests in it.

    Options that choose tests by what they are, not by what they are not, would find none: they see the files only.
    """

    module: pytest.Module

    @classmethod
    def of(cls, module: pytest.Module) -> WholeFile:
        file = cls.from_parent(module.parent, name=module.name, path=module.path, nodeid=module.nodeid)
        file.module = module
        file.add_marker(pytest.mark.timeout(0))  # each test has its own
        return file

    def runtest(self, following: pytest.Item | None = None) -> None:
        """Run the tests, each in place of the file among the session's items: xdist compares their names."""
        session = self.session
        with garbage_stays():
            items = list(session.genitems(self.module))
            self.config.hook.pytest_collection_modifyitems(session=session, config=self.config, items=items)
        if not items:  # what the file before has in common with this one may not be with the next
            session._setupstate.teardown_exact(following)
        place = session.items.index(self)
        for item, nextitem in zip(items, [*items[1:], following], strict=False):
            session.items[place] = item
            self.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
            if session.shouldfail or session.shouldstop:
                break
        session.items[place] = self


class WholeFiles:
    """Plugin for workers."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self) -> Iterator[None]:
        return [WholeFile.of(module) for module in (yield)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        if not isinstance(item, WholeFile):
            return None
        item.runtest(nextitem)
        return True


class RunningTests:
    """Plugin for the process that starts the workers: it names the test in which a worker ends, not only the file."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}
        """Test that began last, by file."""

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._last[nodeid.partition("::")[0]] = nodeid

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        report.nodeid = self._last.get(crashitem, crashitem)
        report.longrepr = str(report.longrepr).replace(crashitem, report.nodeid)
