"""Exit statuses of `headrace doctor`: the command's own, or one of these."""

from __future__ import annotations

FAILED_ABOVE = 100
"""Steps waited longer than `--fail-above` allows."""
DOCTOR_FAILED = 125
"""The doctor itself failed, or could not judge what `--fail-above` asks for. As `git bisect run` takes them, 125 skips
a revision that cannot be tested, and the others are good or bad."""


def exit_status(command: int | None, *, wait_share: float | None, fail_above: float | None) -> int:
    """The command's own where it failed. `command` is None where there was none, as in a notebook or for a session
    cut short."""
    if command or fail_above is None:
        return command or 0
    if wait_share is None:
        return DOCTOR_FAILED
    return FAILED_ABOVE if wait_share > fail_above else 0
