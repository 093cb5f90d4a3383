"""What is shown while a remedy is tried: on a terminal one line that goes again, else a line an attempt."""

from __future__ import annotations

import io

from rich.console import Console

from headrace.doctor.prove.prover import ProveProgress


def test_a_terminal_shows_how_far_it_is() -> None:
    now = [0.0]
    console = Console(file=io.StringIO(), force_terminal=True, width=120, color_system=None, legacy_windows=False)
    progress = ProveProgress(console, clock=lambda: now[0])
    with progress, progress.trying("workers (1 of 3)", expected_s=20.0, left_s=100.0):
        now[0] = 10.0
        progress._progress.refresh()
        said = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
        line = said.splitlines()[-1]
        assert "headrace: trying workers (1 of 3)" in line
        assert line.count("━") == 10  # of 20
        assert "0:00:10 of about 20 s; at most 100 s for all" in line
    assert "\x1b[2K" in console.file.getvalue()[len(said) :]  # type: ignore[attr-defined]  # the line goes


def test_elsewhere_each_is_a_line() -> None:
    console = Console(file=io.StringIO(), width=20)
    progress = ProveProgress(console)
    with progress:
        for what in ("workers (1 of 2)", "prefetch (2 of 2)"):
            with progress.trying(what, expected_s=9.6, left_s=99.0):
                pass
    assert console.file.getvalue().splitlines() == [  # type: ignore[attr-defined]  # a StringIO
        "headrace: trying workers (1 of 2): of about 10 s; at most 99 s for all",
        "headrace: trying prefetch (2 of 2): of about 10 s; at most 99 s for all",
    ]
