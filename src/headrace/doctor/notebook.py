"""`headrace.doctor.watch`: the doctor in a notebook."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .attach import end_fork_server, probe_environment
from .probe import ProbeSettings, SessionClock

if TYPE_CHECKING:
    from rich.console import Console

    from .causes import Prescription
    from .measure import Diagnosis
    from .session.model import CommandOutcome, Machine, Session


PROBE = "_headrace_probe"
"""Name under which the probe is loaded, here as in an observed command."""
_PROBE_FILE = Path(__file__).parent / "probe" / "__init__.py"


class Watch:
    """Result of `with watch()`. All attributes are None while the body runs, and if they could not be computed."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.diagnosis: Diagnosis | None = None
        self.prescription: Prescription | None = None
        """Predicted remedies: nothing is replayed or proved in a watched process."""


@contextmanager
def watch(
    *, show: bool = True, verbose: bool = False, ranges: bool = False, console: Console | None = None
) -> Iterator[Watch]:
    """Observe this process, and the workers that it starts, until the body ends; then print the report.

    Hooks are installed at the beginning and removed at the end: a DataLoader is observed if its iteration begins in the
    body. A watch inside another one, or in a script under `headrace doctor`, reports what has been measured up to its
    end. Exceptions of the body pass through.

    Args:
        show: Print the report.
        console: Console for the report; standard output by default.
        verbose: Print the whole report.
        ranges: Name steps and stages for torch.profiler.
    """
    from .session import session_folder
    from .session.model import CommandOutcome

    watched, begun_ns = Watch(), time.monotonic_ns()
    machines: list[Machine] = []
    with ExitStack() as until_read:
        outer = _active_probe()
        folder = None if outer is None else Path(outer.settings.folder)
        why = None  # until the body begins
        try:
            with ExitStack() as while_running:
                if folder is None:
                    folder = until_read.enter_context(session_folder(observe=True, ranges=ranges)).path
                    while_running.enter_context(_probe_in(folder))
                while_running.enter_context(_sampled(SessionClock(ProbeSettings.read(str(folder))), machines))
                why = "failed"
                yield watched
            why = "finished"
        except KeyboardInterrupt:
            why = "interrupted"
            raise
        finally:
            if folder is not None and why is not None:
                if (held := _active_probe()) is not None:  # a watch around this one continues
                    held.training.closed.write()  # its probe batches the writing of short steps
                duration_us = (time.monotonic_ns() - begun_ns) // 1000
                outcome = CommandOutcome(command=[], status=None, why=why, duration=duration_us)
                _guarded(lambda: _conclude(watched, folder, outcome, machines))
                _guarded(lambda: _prescribe(watched), what="no remedies are shown: computing them")
                _guarded(lambda: _show(watched, console, verbose) if show else None)


def _probe() -> ModuleType:
    """Load the probe's package, as sitecustomize does."""
    if PROBE not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            PROBE, _PROBE_FILE, submodule_search_locations=[str(_PROBE_FILE.parent)]
        )
        assert spec is not None
        assert spec.loader is not None
        sys.modules[PROBE] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[PROBE])
    return sys.modules[PROBE]


def _active_probe() -> Any:
    """Return the active probe of this process, or None."""
    probe = sys.modules.get(PROBE)
    return None if probe is None else probe.active()


@contextmanager
def _probe_in(folder: Path) -> Iterator[None]:
    """Run the probe here, and in each Python process started meanwhile, including spawned workers."""
    end_fork_server()
    before = dict(os.environ)
    probed = probe_environment(folder, before)
    probe = _probe()
    probe.start(str(folder))
    os.environ.update(probed)
    try:
        yield
    finally:
        probe.stop()
        end_fork_server()
        for name in (name for name, value in probed.items() if value != before.get(name)):
            if name in before:
                os.environ[name] = before[name]
            else:
                os.environ.pop(name, None)


@contextmanager
def _sampled(clock: SessionClock, machines: list[Machine]) -> Iterator[None]:
    from .machine import MachineSampler

    sampler = MachineSampler(clock, os.getpid()).start()
    try:
        yield
    finally:
        machines.append(sampler.stop())


def _conclude(watched: Watch, folder: Path, outcome: CommandOutcome, machines: list[Machine]) -> None:
    from .causes import diagnose
    from .session import read_session

    watched.session = read_session(folder, outcome=outcome, mode="watch", machines=machines)
    watched.diagnosis = diagnose(watched.session)


def _prescribe(watched: Watch) -> None:
    """Prescribe remedies, after reading files for a few seconds at most, as in an observed command."""
    if watched.session is None or watched.diagnosis is None:
        return
    from .adoption import survey_of
    from .causes import prescribe
    from .edits import files_here

    session = watched.session
    session.survey = survey_of(session) if session.machines else None
    watched.prescription = prescribe(session, watched.diagnosis, files_here())


def _show(watched: Watch, console: Console | None, verbose: bool) -> None:
    if watched.session is None or watched.diagnosis is None:
        return
    from rich.console import Console as NewConsole

    from .report import report_view, show

    view = report_view(watched.session, watched.diagnosis, watched.prescription)
    show(view, console or NewConsole(), verbose=verbose, in_cell=True)


def _guarded(work: Callable[[], None], *, what: str = "its report") -> None:
    """Report a fault of the doctor: it neither becomes an exception of the watched code nor hides one."""
    try:
        work()
    except Exception:
        sys.stderr.write(f"headrace: the watched code has run; {what} failed, which is a fault of the doctor's\n")
        traceback.print_exc()
