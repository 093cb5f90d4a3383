"""Reports of sessions that are saved, merged or still running."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from headrace.errors import UsageError

from .attach import DOCTOR_FAILED, exit_status
from .causes import diagnose, prescribe
from .report import Outputs, report_view
from .run import prescribed, say
from .session import SESSION_FILE, merged, read_session, saved_session
from .session.model import CommandOutcome, Session


def show_again(path: Path, outputs: Outputs, *, fail_above: float | None) -> int:
    """Render a saved session and return the exit status.

    Raises:
        SessionError: The file is no session.
        UsageError: An output cannot be written.
    """
    outputs.check()
    return _shown(saved_session(path), path, outputs, fail_above)


def show_merged(paths: Sequence[Path], outputs: Outputs, *, fail_above: float | None) -> int:
    """Merge the sessions of one training's nodes, render them as one, and return the exit status.

    Raises:
        SessionError: A file is no session, or they are not of one training.
        UsageError: An output cannot be written.
    """
    outputs.check()
    return _shown(merged([saved_session(path) for path in paths]), None, outputs, fail_above)


def _shown(session: Session, saved: Path | None, outputs: Outputs, fail_above: float | None) -> int:
    try:
        diagnosis = diagnose(session)
        say(*outputs.put(session, diagnosis, prescribed(session, diagnosis), saved=saved))
    except Exception:
        which = "" if saved is None else f"{saved}: "
        say(f"{which}the report failed: the file was changed after it was written, or it is a fault of the doctor's")
        say(traceback.format_exc())
        return DOCTOR_FAILED
    return exit_status(None, wait_share=diagnosis.data_share, fail_above=fail_above)


def watch_run(folder: Path, port: int) -> int:
    """Serve the HTML report of a running command, only on this machine, until Ctrl-C; return the exit status.

    Raises:
        UsageError: The folder belongs to no run with `--keep`, or the port is taken.
    """
    from .report.html.live_page import LivePageServer  # jinja2 is needed only here

    try:
        with LivePageServer(partial(live_page, folder), port) as server:
            live_page(folder)
            say(f"the report as it grows: {server.url} (Ctrl-C ends this view, not the run)")
            with suppress(KeyboardInterrupt):
                server.serve_forever()
    except OSError as error:
        raise UsageError(f"--watch: expected a free port on {port}, got none ({error.strerror})") from error
    return 0


def live_page(folder: Path) -> str:
    """Return the HTML report of a run's evidence so far, or of its session after the end.

    Raises:
        UsageError: The folder belongs to no run with `--keep`.
    """
    from .report.html.page import html_page

    saved = folder / SESSION_FILE
    if saved.exists():
        session = saved_session(saved)
    else:
        try:
            session = read_session(folder, outcome=CommandOutcome([], None, "running", 0), mode="measure")
        except (OSError, ValueError) as error:
            raise UsageError(
                f"--watch: expected the folder of a run that was started with --keep, got {folder} ({error})"
            ) from error
    diagnosis = diagnose(session)
    return html_page(report_view(session, diagnosis, prescribe(session, diagnosis) if saved.exists() else None))
