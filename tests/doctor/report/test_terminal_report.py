"""The terminal's report and Markdown: the words, and how they fit a width, an encoding and a screen."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from machine_findings import quantities
from made_reports import DIED, made_diagnosis, made_prescription, made_ranks, made_session
from replacing import replace
from report_pages import AGAIN, GOLDEN, printed, text
from rich.cells import cell_len
from rich.console import Console

from headrace.doctor.causes import Edit, Prescription
from headrace.doctor.measure.diagnosis import Diagnosis, LoaderProduction, Statement, StepBudget
from headrace.doctor.report.view import report_view
from headrace.doctor.session.model import CommandOutcome, Session, SessionNote

NOTHING = Diagnosis(Statement("no-training", "No training was seen."), None, "cpu")
INDEXED, WORKERS, *_ = made_prescription().remedies
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("what", ["report", "report-remedies"])
@pytest.mark.parametrize(
    ("name", "width", "encoding", "verbose"),
    [("screen", 100, "utf-8", False), ("narrow-ascii", 60, "ascii", False), ("verbose", 100, "utf-8", True)],
)
def test_looks_as_it_was_agreed(what: str, name: str, width: int, encoding: str, verbose: bool) -> None:
    prescription = made_prescription() if what == "report-remedies" else None
    diagnosis = made_ranks() if verbose and prescription is None else made_diagnosis()
    shown = printed(made_session(), diagnosis, prescription, width=width, encoding=encoding, verbose=verbose)
    assert shown == (GOLDEN / f"{what}-{name}.txt").read_text(encoding="utf-8")


def test_fits_a_terminal_of_forty_lines() -> None:
    for remedies in (None, made_prescription()):
        assert len(printed(made_session(), made_ranks(), remedies).splitlines()) <= 40


@pytest.mark.parametrize("width", [80, 120])
def test_no_word_of_a_remedy_is_left_out_and_no_figure_cut(width: int) -> None:
    first, second, *others = made_prescription().remedies
    costs = ["236 MB for 400 samples of 590 kB, of 24 GB free", "472 MB where each of 2 workers keeps its own"]
    title = "samples kept as they are after Pillow resize in /dev/shm instead of a folder"
    remedies = [replace(first, title=title, costs=costs), second, *others]
    shown = printed(
        made_session(),
        made_diagnosis(),
        replace(made_prescription(), remedies=remedies, outcomes=made_prescription().outcomes[1:]),
        width=width,
    )
    part = shown[shown.index("What to do") : shown.index("--verbose shows")].splitlines()[1:]
    assert "…" not in "".join(part)
    begin = min(line.index("38.2 ms") for line in part if "38.2 ms" in line)
    titles, figures = (" ".join(" ".join(column).split()) for column in zip(*_columns(part, begin), strict=True))
    assert title[1:] in titles
    before, costs_shown, after = figures.partition(", ".join(costs))
    assert quantities(before) == ["38.2 ms", "36.0", "45.1 ms", "2.6 ×"]
    assert costs_shown
    assert after.count("refused") == 2
    assert DIED.splitlines()[-1] in after
    assert quantities(after)[-2:] == ["34.0 ms", "2.9 ×"]


def _columns(lines: list[str], begin: int) -> Iterator[tuple[str, str]]:
    for line in lines:
        yield line[:begin], line[begin:]


def test_no_line_of_a_diff_is_wrapped() -> None:
    line = "+    loader = DataLoader(dataset, " + ", ".join(f"argument_{place}=value" for place in range(12)) + ")"
    first, *others = made_prescription().remedies
    edit = Edit("train.py", 1, f"--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-old\n{line}\n")
    prescription = replace(made_prescription(), remedies=[replace(first, edit=edit), *others])
    assert "     " + line in text(report_view(made_session(), made_diagnosis(), prescription)).splitlines()
    assert line in printed(made_session(), made_diagnosis(), prescription, width=60, verbose=True)


def test_remedies_left_out_are_counted() -> None:
    first = made_prescription().remedies[0]
    many = [replace(first, code=f"code-{place}", title=f"remedy {place}") for place in range(7)]
    together = [many[0].code, many[5].code]
    prescription = replace(made_prescription(), remedies=many, outcomes=[], together=together)
    shown = printed(made_session(), made_diagnosis(), prescription)
    assert "  Together: 1, 6 " in shown
    assert "4 remedies more" in shown
    assert "remedy 3" not in shown


@pytest.mark.one_in(8)
@pytest.mark.parametrize("width", [60, 61, 79, 100, 200])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_no_line_is_wider_than_the_terminal(width: int, encoding: str) -> None:
    diagnosis = _with_long_texts(made_ranks())
    for verbose in (True, False):
        page = printed(
            made_session(), diagnosis, _with_long_remedies(), width=width, encoding=encoding, verbose=verbose
        )
        assert max(map(cell_len, page.splitlines())) <= width


def test_a_terminal_narrower_than_sixty_gets_sixty() -> None:
    assert printed(made_session(), made_diagnosis(), width=20) == printed(made_session(), made_diagnosis(), width=60)


def test_colours_the_wait_by_its_share() -> None:
    shown = printed(made_session(), made_diagnosis(), colour=True, verbose=True)
    wait = next(line for line in shown.splitlines() if "data wait" in line)
    assert "\x1b[31m█" in wait
    assert "\x1b[1;31m" in shown.splitlines()[0]
    calm = printed(made_session(), replace(made_diagnosis(), wait_share=0.02), colour=True)
    assert "\x1b[1;32m" in calm.splitlines()[0]


def test_colours_change_nothing_else() -> None:
    plain = printed(made_session(), made_diagnosis())
    coloured = ESCAPES.sub("", printed(made_session(), made_diagnosis(), colour=True))
    assert [line.rstrip() for line in coloured.splitlines()] == plain.splitlines()


def test_no_colour_where_nobody_wants_any(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from headrace.doctor.report.terminal import show

    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    with Console(force_terminal=True, width=100).capture() as captured:
        pass
    console = Console(force_terminal=True, width=100)
    with console.capture() as captured:
        show(report_view(made_session(), made_diagnosis()), console)
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", captured.get())


def test_a_command_that_failed_shows_its_last_words() -> None:
    outcome = CommandOutcome(["python", "x.py"], 3, "failed", 2_000_000, [f"line {number}" for number in range(20)])
    outcome.last_lines[-1] = "    " + "x" * 150
    shown = printed(replace(made_session(), outcome=outcome), NOTHING)
    assert quantities(shown.splitlines()[1]) == ["2.0 s", "3"]
    assert "  line 18\n      " + "x" * 94 + "\n  " + "x" * 56 in shown
    assert "  line 13" not in shown


def test_a_process_that_hangs_shows_where() -> None:
    session = made_session()
    session.processes[1].stacks.append("hung: a.py:1\n    lock.acquire()\n")
    lines = printed(session, made_diagnosis()).splitlines()
    at = lines.index("  hung: a.py:1")
    assert "201" in lines[at - 1]
    assert lines[at + 1] == "      lock.acquire()"


def test_a_long_note_begins_with_its_last_line() -> None:
    session = replace(made_session(), notes=[SessionNote("thread-died", "Traceback\n  File x\nValueError: odd\n", 7)])
    shown = printed(session, made_diagnosis(), verbose=True)
    note = shown.partition("thread-died (process 7): ")[2].partition("  • ")[0]
    assert note.startswith("ValueError: odd\n")
    assert len(note.splitlines()) == 3


def test_a_session_without_anything_is_short() -> None:
    session = Session("", "measure", "", None, 0, CommandOutcome(["x"], 0, "finished", 1_000_000))
    lines = printed(session, NOTHING).splitlines()
    assert lines[0] == NOTHING.verdict.text
    assert len(lines) < 8


def test_the_text_is_the_whole_report() -> None:
    assert text(report_view(made_session(), made_diagnosis(), again=AGAIN)) == printed(
        made_session(), made_diagnosis(), verbose=True
    )


def _with_long_remedies() -> Prescription:
    long, wide = "word " * 60 + "x" * 300, "映像" * 90
    first, *others = made_prescription().remedies
    edit = Edit(wide, 1, "+new\n-old")  # whose lines are never wrapped
    remedies = [replace(first, title=wide, why=long, costs=[wide, long], edit=edit), *others]
    return replace(made_prescription(), remedies=[*remedies, replace(others[-1], title=long, why=wide)])


def _with_long_texts(diagnosis: Diagnosis) -> Diagnosis:
    long, wide = "word " * 60 + "x" * 300, "映像" * 90
    making: LoaderProduction = diagnosis.batch_production[0]
    stages = [replace(stage, label=wide) for stage in making.stages]
    lines = [replace(line, place=f"/{'long/' * 60}{wide}:1:f") for line in making.lines]
    budget: StepBudget = diagnosis.budgets[0]
    return replace(
        diagnosis,
        verdict=Statement("input-bound", long),
        batch_production=[replace(making, stages=stages, lines=lines)],
        findings=[replace(one, text=long, evidence=wide, advice=long) for one in diagnosis.findings],
        budgets=[replace(budget, parts=[replace(part, name=wide) for part in budget.parts])],
        ranks=[replace(rank, cause=wide) for rank in diagnosis.ranks],
    )
