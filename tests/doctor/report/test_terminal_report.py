"""Texts on a terminal, in Markdown, JSON and HTML: how they fit, and that texts of the user can only be seen."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine_findings import quantities
from made_reports import DIED, made_diagnosis, made_prescription, made_ranks, made_session
from made_sessions import field_names, replace
from report_pages import GOLDEN, printed, text
from rich.cells import cell_len

from headrace.doctor.causes import Edit, Prescription
from headrace.doctor.measure.diagnosis import Diagnosis, LoaderProduction, Statement, StepBudget
from headrace.doctor.report.html_page import html_page
from headrace.doctor.report.outputs import document
from headrace.doctor.report.terminal_layout import safe, safe_json
from headrace.doctor.report.view import report_view
from headrace.doctor.session.model import CommandOutcome, SessionNote
from headrace.doctor.session.storage import decode_session

NOTHING = Diagnosis(Statement("no-training", "No training was seen."), None, "cpu")
INDEXED, WORKERS, *_ = made_prescription().remedies


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
    prescription = replace(made_prescription(), remedies=remedies, outcomes=made_prescription().outcomes[1:])
    shown = printed(made_session(), made_diagnosis(), prescription, width=width)
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


def test_colours_the_wait_by_its_share() -> None:
    shown = printed(made_session(), made_diagnosis(), colour=True, verbose=True)
    wait = next(line for line in shown.splitlines() if "data wait" in line)
    assert "\x1b[31m█" in wait
    assert "\x1b[1;31m" in shown.splitlines()[0]
    calm = printed(made_session(), replace(made_diagnosis(), wait_share=0.02), colour=True)
    assert "\x1b[1;32m" in calm.splitlines()[0]


def test_a_command_that_failed_shows_its_last_words() -> None:
    outcome = CommandOutcome(["python", "x.py"], 3, "failed", 2_000_000, [f"line {number}" for number in range(20)])
    outcome.last_lines[-1] = "    " + "x" * 150
    shown = printed(replace(made_session(), outcome=outcome), NOTHING)
    assert quantities(shown.splitlines()[1]) == ["2.0 s", "3"]
    assert "  line 18\n      " + "x" * 94 + "\n  " + "x" * 56 in shown
    assert "  line 13" not in shown


def test_a_process_that_hangs_shows_where() -> None:
    session = made_session()
    stack = '  File "a.py", line 1, in load\n    lock.acquire()\n'
    session.processes[1].stacks.append(f"hung: batch 99 of epoch 9 has been in the making for 12 s:\n{stack}")
    lines = printed(session, made_diagnosis()).splitlines()
    at = lines.index('    File "a.py", line 1, in load')
    assert "201" in lines[at - 1]
    assert lines[at + 1] == "      lock.acquire()"


def test_a_long_note_begins_with_its_last_line() -> None:
    session = replace(made_session(), notes=[SessionNote("thread-died", "Traceback\n  File x\nValueError: odd\n", 7)])
    shown = printed(session, made_diagnosis(), verbose=True)
    note = shown.partition("thread-died (process 7): ")[2].partition("  • ")[0]
    assert note.startswith("ValueError: odd\n")
    assert len(note.splitlines()) == 3


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


HOSTILE = {
    "ansi": "\x1b[2J\x1b]0;owned\x07",
    "markup": "[bold red]x[/] [link=file:///etc/passwd]y[/link]",
    "line": "a\nGPU waits 0 % of each step\r\x0b\x0c\x85\u2028\u2029b",
    "bidi": "abc\u202egnp.\u2066x\u2069\u200f",
    "invisible": "a\u200bb\ufeffc\u00add\u2060e\ufffee",
    "c1": "\x9b31m\x9d0;x\x9c",
    "bytes": "name\udcff\udc80.png",
    "html": "</script><img src=x onerror=alert(1)>",
    "json": '"],"x":{"ph":"X',
    "null": "a\x00b\x7f",
    "tags": "x\U000e0041\u0600y",
    "emoji": ":warning: \U0001f600",
}
CATEGORIES = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Of Unicode: control, format, surrogate, line and paragraph separator."""


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_on_a_terminal(name: str, encoding: str) -> None:
    def shown(word: str) -> str:
        session, diagnosis, prescription = (
            _spoilt(one(), word) for one in (made_session, made_ranks, made_prescription)
        )
        return printed(session, diagnosis, prescription, verbose=True, encoding=encoding)

    evil, clean = shown(HOSTILE[name]), shown("x")
    assert _dangerous(evil.replace("\n", "")) == []
    assert "Machine" in evil
    assert [line for line in evil.splitlines() if line.startswith("GPU waits 0")] == []
    assert evil.split("\n").count("") == clean.split("\n").count("")


@pytest.mark.parametrize("name", [name for name in HOSTILE if name != "bytes"])
def test_in_the_json_which_reads_back_the_same(name: str) -> None:
    session = _spoilt(made_session(), HOSTILE[name])
    shown = document(session, _spoilt(made_ranks(), HOSTILE[name]))
    assert _dangerous(shown[:-1]) == []
    assert decode_session(shown.encode()) == session
    assert json.loads(shown)["diagnosis"]["verdict"]["text"] == HOSTILE[name]


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", HOSTILE)
def test_in_a_page_where_it_makes_no_element_and_no_attribute(name: str) -> None:
    evil, plain = _page(HOSTILE[name]), _page("x")
    assert _dangerous(evil.replace("\n", "")) == []
    evil.encode("utf-8")
    assert _shapes(evil) <= _shapes(plain)


def test_no_word_of_a_report_takes_the_place_of_a_part_of_the_page() -> None:
    words = "TITLE PICTURES {code} {stylesheet} {{}}"
    page = _page(words)
    assert words in page.partition("<title>")[2].partition("</title>")[0]
    assert page.count("<figure") == 0
    assert words in page.partition("<pre>")[2]


def test_a_page_loads_nothing_and_runs_nothing() -> None:
    page = _page("<script>alert(1)</script><img src=x onerror=y>")
    assert {name for name, _ in _shapes(page)} <= {"html", "head", "meta", "title", "style", "body", "pre", "span"}
    assert all(
        set(names) <= {"class", "lang", "charset", "content", "http-equiv", "name"} for _, names in _shapes(page)
    )
    assert "default-src 'none'" in page
    assert not re.search(r"url\(|@import|expression", page)


def _page(word: str) -> str:
    """A session is read from JSON, which holds Unicode only."""
    session = made_session() if word == HOSTILE["bytes"] else _spoilt(made_session(), word)
    return html_page(report_view(session, _spoilt(made_ranks(), word), _spoilt(made_prescription(), word), again=word))


def _shapes(page: str) -> set[tuple[str, tuple[str, ...]]]:
    """Return the name and the attributes of every element."""
    found = set()

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.add((tag, tuple(sorted(name for name, _ in attrs))))

    Parser().feed(page)
    return found


@given(st.text())
def test_what_is_safe_stays_and_the_rest_is_one_line_of_seen_characters(anything: str) -> None:
    shown = safe(anything)
    assert _dangerous(shown) == []
    if anything.isprintable():
        assert shown == anything
    assert safe(anything, ascii_only=True).isascii()


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_keeps_its_meaning(anything: str) -> None:
    shown = safe_json(json.dumps({"x": anything}, ensure_ascii=False))
    assert json.loads(shown) == {"x": anything}
    assert _dangerous(shown) == []


def _dangerous(shown: str) -> list[str]:
    return [repr(character) for character in shown if unicodedata.category(character) in CATEGORIES]


def _spoilt(value: Any, evil: str) -> Any:
    """The same object with `evil` for each text that the user's data, or what runs it, could have made."""
    kept = {"role", "code", "why", "ended", "mode", "format", "created", "spans", "device", "unit"}
    if names := field_names(value):
        return replace(value, **{name: _spoilt(getattr(value, name), evil) for name in names if name not in kept})
    if isinstance(value, list):
        return [_spoilt(one, evil) for one in value]
    if isinstance(value, dict):
        return {key: _spoilt(one, evil) for key, one in value.items()}
    return evil if isinstance(value, str) else value
