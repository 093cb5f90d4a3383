"""What limits reads of stores: recorded runs whose link is known, and what is said where nothing does."""

from __future__ import annotations

import re
from html import escape
from typing import Any

import pytest
from golden_sessions import prescribed, session_of
from made_sessions import replace
from report_pages import codes, said, text

from headrace.doctor.causes import Prescription, diagnose
from headrace.doctor.causes.stages import NAMES
from headrace.doctor.measure import Diagnosis
from headrace.doctor.report.html_page import html_page
from headrace.doctor.report.view import report_view
from headrace.doctor.session.model import Session
from headrace.doctor.session.storage import encode_session
from headrace.doctor.session.trainers import RemoteReads

LATENCY_US, BANDWIDTH, BATCH = 20_000, 400_000, 8
"""Of the links of cases/remote_photos.py."""
BOTO3, FSSPEC, PIPE = "remote_boto3", "remote_fsspec", "remote_pipe"
Found = tuple[Session, Diagnosis, Prescription]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Found]:
    """Each recorded run, its diagnosis and its prescription."""
    runs = {}
    for name in (BOTO3, FSSPEC, PIPE):
        session = session_of(name, tmp_path_factory.mktemp(name))
        runs[name] = (session, *prescribed(name, session))
    return runs


def remote(diagnosis: Diagnosis) -> dict[str, Any]:
    return {one.code: one for one in diagnosis.findings if one.code.startswith("remote")}


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("name", "requests"), [(BOTO3, 1), (FSSPEC, 2)])
@pytest.mark.long
def test_one_request_after_another_is_latency(name: str, requests: int, found: dict[str, Found]) -> None:
    session, diagnosis, prescription = found[name]
    told = remote(diagnosis)
    assert set(told) == {"remote-latency"}
    assert told["remote-latency"].weight > 0.5
    assert f"{requests}.0 requests" in told["remote-latency"].evidence
    assert NAMES["remote"] in said(diagnosis)
    (store,) = session.remote.stores
    assert store.requests / session.remote.batches == pytest.approx(requests * BATCH, rel=0.05)
    assert LATENCY_US <= store.first_us / store.requests < 4 * LATENCY_US
    remedies = {one.code: one for one in prescription.remedies}
    assert prescription.lower_bounds is not None
    assert remedies["remote-ahead"].prediction is not None
    assert remedies["remote-ahead"].prediction.step_us < 0.8 * prescription.lower_bounds.observed_us
    assert remedies["workers"].helps


def test_a_link_that_is_full_is_bandwidth_and_its_rate_is_the_links(found: dict[str, Found]) -> None:
    _, diagnosis, prescription = found[PIPE]
    told = remote(diagnosis)
    assert set(told) == {"remote-bandwidth"}
    rate = re.search(r"(\d+) kB a second", told["remote-bandwidth"].text)
    assert rate is not None
    assert float(rate[1]) * 1e3 == pytest.approx(BANDWIDTH, rel=0.15)
    assert "remote-bandwidth" in codes(diagnosis)
    remedies = {one.code: one for one in prescription.remedies}
    assert "remote-ahead" not in remedies
    assert remedies["remote-cache"].helps


@pytest.mark.parametrize("name", [BOTO3, FSSPEC, PIPE])
def test_no_report_shows_what_the_script_is_trusted_with(name: str, found: dict[str, Found]) -> None:
    """All three have credentials in their code: in a URL, a header, and arguments of a client."""
    session, diagnosis, prescription = found[name]
    view = report_view(session, diagnosis, prescription)
    shown = [text(view), html_page(view)]
    shown += [encode_session(session).decode()]
    assert not any("planted" in one.lower() for one in shown)


def test_an_odd_name_of_a_store_is_only_seen(found: dict[str, Found]) -> None:
    session, _, prescription = found[BOTO3]
    odd = changed(session, place="s3://<b>\x1b[2J")
    diagnosis = diagnose(odd)
    page = html_page(report_view(odd, diagnosis, prescription))
    assert escape("s3://<b>") in page
    for shown in (text(report_view(odd, diagnosis, prescription)), page):
        assert "\x1b[2J" not in shown


def test_an_edit_that_would_show_a_credential_is_a_hint(found: dict[str, Found]) -> None:
    prescription = found[FSSPEC][2]
    workers = next(one for one in prescription.remedies if one.code == "workers")
    assert workers.helps
    assert workers.edit is None
    assert "num_workers" in workers.hint
    assert prescription.patch == ""


def changed(session: Session, **figures: Any) -> Session:
    store = replace(session.remote.stores[0], **figures)
    return replace(session, remote=RemoteReads(session.remote.batches, [store]))


def test_errors_of_the_store_are_told(found: dict[str, Found]) -> None:
    session, diagnosis, _ = found[BOTO3]
    requests = session.remote.stores[0].requests
    told = remote(diagnose(changed(session, failed=requests // 4)))
    assert "25 %" in told["remote-latency"].evidence
    assert "error" not in remote(diagnosis)["remote-latency"].evidence


@pytest.mark.parametrize(
    ("request_bytes", "code", "said"),
    [
        (5_800, "remote-latency", "The client's work on small requests limits remote reads"),
        (200_000, "remote-bandwidth", "Bandwidth limits remote reads"),
    ],
)
def test_small_answers_need_no_bandwidth(request_bytes: int, code: str, said: str, found: dict[str, Found]) -> None:
    """As where boto3 asks for the size first, and starts threads for each transfer."""
    session = found[BOTO3][0]
    (store,) = session.remote.stores
    diagnosis = diagnose(changed(session, first_us=store.first_us // 3, bytes=request_bytes * store.requests))
    (finding,) = remote(diagnosis).values()
    assert finding.code == code
    assert finding.text.startswith(said)


def test_without_requests_nothing_is_said(found: dict[str, Found]) -> None:
    assert remote(diagnose(replace(found[BOTO3][0], remote=RemoteReads()))) == {}
