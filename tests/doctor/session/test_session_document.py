"""The session's document: a round trip, and what damaged and newer ones are told."""

from __future__ import annotations

import json

import pytest
from made_sessions import MadeRun, machine, made_session

from headrace.doctor.session.model import UnreachedProcess
from headrace.doctor.session.storage import decode_session, encode_session
from headrace.errors import HeadraceError, SessionError


@pytest.fixture
def session(tmp_path):
    facts = machine(cores=2.0)
    facts.time, facts.columns, facts.processes = [1, 2], {"cpu_cores_busy": [None, 1.5]}, {100: {"threads_peak": 3}}
    unreached = [UnreachedProcess(9, "python -I x.py", "-I")]
    return made_session(tmp_path, MadeRun(gpu=True, steps=5), machines=[facts], unreached=unreached)


def test_a_session_comes_back_as_it_was(session):
    assert decode_session(encode_session(session)) == session


def test_the_same_session_gives_the_same_bytes(session):
    assert encode_session(decode_session(encode_session(session))) == encode_session(session)


def test_the_document_says_what_it_is(session):
    document = json.loads(encode_session(session))
    assert (document["format"], document["version"]) == ("headrace-session", 1)


def test_fields_of_a_newer_doctor_are_ignored(session):
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
            {"version": 2},
            "s.json: expected a session of version 1 to 1, got version 2; read it with the headrace that wrote it, or "
            "a newer one",
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


def test_a_document_without_a_format_is_none_of_ours():
    with pytest.raises(SessionError, match=r"expected a session of the doctor's .*, got no `format`"):
        decode_session(b"{}")


def test_a_session_cut_short_is_called_that(session):
    data = encode_session(session)[:1000]
    with pytest.raises(SessionError) as caught:
        decode_session(data, where="s.json")
    assert str(caught.value).startswith("s.json: ")
    assert "1000 bytes" in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"\x00\x01", b"[1, 2]", b'"text"', b"\xff\xfe{}", b'{"format": 3}'])
def test_whatever_is_no_session_is_refused_in_words(data):
    with pytest.raises(SessionError, match=r"^the document: expected"):
        decode_session(data)


def test_the_error_is_a_value_error_of_headrace():
    assert issubclass(SessionError, HeadraceError)
    assert issubclass(SessionError, ValueError)


def test_a_missing_part_is_named(session):
    document = json.loads(encode_session(session))
    del document["outcome"]["command"]
    with pytest.raises(SessionError, match=r"missing required field `command` - at `\$.outcome`"):
        decode_session(json.dumps(document).encode())


def damaged(session, damage):
    document = json.loads(encode_session(session))
    damage(document)
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda document: document["trainers"][0]["gets"]["index"].pop(),
            "expected columns of equal length, got 5 of `pass_` and 4 of `index` - at `$.trainers[0].gets`",
        ),
        (
            lambda document: document["machines"][0]["columns"].update(cpu_cores_busy=[]),
            "expected columns of equal length, got 2 of `time` and 0 of `cpu_cores_busy` - at `$.machines[0]`",
        ),
        (
            lambda document: document["trainers"][0]["gets"]["shape"].__setitem__(1, 7),
            "expected numbers below 1 (shapes), got 7 - at `$.trainers[0].gets.shape`",
        ),
        (
            lambda document: document["makers"][0]["stages"].clear(),
            "expected numbers below 0 (stages), got 0 - at `$.makers[0].batches.stages`",
        ),
    ],
)
def test_a_table_that_lost_a_part_is_told_by_its_place(session, damage, message):
    with pytest.raises(SessionError) as caught:
        decode_session(damaged(session, damage), where="s.json")
    assert str(caught.value).startswith(f"s.json: {message}; ")
