"""Reports of sessions that are saved or merged."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path

from headrace.doctor.attach import DOCTOR_FAILED, exit_status
from headrace.doctor.causes import diagnose
from headrace.doctor.report import Outputs
from headrace.doctor.run import prescribed, say
from headrace.doctor.session import merged, saved_session
from headrace.doctor.session.model import Session


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
    return exit_status(0, wait_share=diagnosis.data_share, fail_above=fail_above)
