"""Texts of the user's data can do no more than be seen: on a terminal, in the JSON, on the HTML page."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest
from html_pages import parsed
from hypothesis import given
from hypothesis import strategies as st
from made_reports import made_prescription, made_ranks, made_session
from replacing import field_names, replace
from report_pages import printed

from headrace.doctor.report.html_page import html_page
from headrace.doctor.report.outputs import document
from headrace.doctor.report.terminal_layout import safe, safe_json
from headrace.doctor.report.view import report_view
from headrace.doctor.session.storage import decode_session

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
    assert _shapes(evil) == _shapes(plain)


def _page(word: str) -> str:
    """A session is read from JSON, which holds Unicode only."""
    session = made_session() if word == HOSTILE["bytes"] else _spoilt(made_session(), word)
    return html_page(report_view(session, _spoilt(made_ranks(), word), _spoilt(made_prescription(), word), again=word))


def _shapes(page: str) -> set[tuple[object, ...]]:
    return {(tag.name, tuple(sorted(tag.attributes)), tuple(tag.inside)) for tag in parsed(page)}


def test_markup_is_shown_and_not_followed() -> None:
    session = replace(made_session(), outcome=replace(made_session().outcome, command=["[red]x[/red]"]))
    assert "'[red]x[/red]'" in printed(session, made_ranks())


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


def test_ordinary_names_of_every_script_stay_as_they_are() -> None:
    names = "bücher/映像/фото/صورة/😀 (1).png"
    assert safe(names) == names
    assert safe(names, ascii_only=True).startswith("b\\xfccher/\\u6620")


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
