"""The session's document: a round trip, and what damaged and newer ones are told."""

from __future__ import annotations

import json

import pytest
from made_sessions import MadeRun, machine, made_session

from headrace.doctor.session.model import UnreachedProcess
from headrace.doctor.session.storage import decode_session, encode_session
from headrace.errors import SessionError


@pytest.fixture
def session(tmp_path):
    facts = machine(cores=2.0)
    facts.time, facts.columns, facts.processes = [1, 2], {"cpu_cores_busy": [None, 1.5]}, {100: {"cpu_s": 3}}
    unreached = [UnreachedProcess(9, "python -I x.py", "-I")]
    return made_session(tmp_path, MadeRun(gpu=True, steps=5), machines=[facts], unreached=unreached)


def test_a_session_comes_back_as_it_was(session):
    encoded = encode_session(session)
    assert decode_session(encoded) == session
    assert encode_session(decode_session(encoded)) == encoded


def test_the_document_says_what_it_is(session):
    document = json.loads(encode_session(session))
    assert (document["format"], document["version"]) == ("headrace-session", 2)


def test_the_results_beside_a_session_are_ignored(session):
    document = json.loads(encode_session(session))
    document["weather"] = "fine"
    document["trainers"][0]["mood"] = 3
    assert decode_session(json.dumps(document).encode()) == session


def changed(session, **changes):
    return json.dumps(json.loads(encode_session(session)) | changes).encode()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"version": 1},
            "s.json: expected a session of version 2, got version 1; run the doctor again, or read it with the "
            "headrace that wrote it",
        ),
        (
            {"format": "headrace-index"},
            's.json: expected a session of the doctor\'s ("format": \'headrace-session\'), got "format": '
            "'headrace-index'; give the session.json that `headrace doctor` wrote",
        ),
        (
            {"steps": "many"},
            "s.json: expected `int`, got `str` - at `$.steps`; the file was changed after it was written",
        ),
    ],
)
def test_another_document_is_told_what_was_expected_and_where(session, changes, message):
    with pytest.raises(SessionError) as caught:
        decode_session(changed(session, **changes), where="s.json")
    assert str(caught.value) == message


def test_a_session_cut_short_is_called_that(session):
    data = encode_session(session)[:1000]
    with pytest.raises(SessionError) as caught:
        decode_session(data, where="s.json")
    assert str(caught.value).startswith("s.json: ")
    assert "1000 bytes" in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"\x00\x01", b"{}", b'"text"', b"\xff\xfe{}", b'{"format": 3}'])
def test_whatever_is_no_session_is_refused_in_words(data):
    with pytest.raises(SessionError, match=r"^the document: expected"):
        decode_session(data)
