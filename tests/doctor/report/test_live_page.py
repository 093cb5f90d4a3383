"""The report of a run that goes on, in a browser: over real connections to this machine."""

from __future__ import annotations

import http.client
import json
import threading
from contextlib import contextmanager
from functools import partial

import pytest
from browser import CHROMIUM, DRIVER, WHY_NOT, browser
from made_sessions import MadeRun, made_session, simulate, write_settings

from headrace.doctor.report import document
from headrace.doctor.report.html.live_page import REFRESH_S, LivePageServer
from headrace.doctor.saved_sessions import live_page, watch_run
from headrace.errors import UsageError


@contextmanager
def served(page):
    with LivePageServer(page) as server:
        thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.01))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def asked(server, path="/", method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, answer.headers, body


@pytest.fixture
def run(tmp_path):
    """A run that goes on: the trainer's evidence, of which the last steps are not written yet."""
    write_settings(tmp_path)
    made = simulate(MadeRun(steps=40)).items()
    return tmp_path, {name: [json.dumps(record) for record in records] for name, records in made}


def write(folder, lines, share):
    evidence = folder / "evidence"
    evidence.mkdir(exist_ok=True)
    for name, of_file in lines.items():
        text = "\n".join(of_file[: int(len(of_file) * share)])
        (evidence / f"{name}.jsonl").write_text(text[:-5])  # the last record is being written


def test_it_grows_with_the_run(run):
    folder, lines = run
    with served(partial(live_page, folder)) as server:
        write(folder, lines, 0.05)
        status, headers, early = asked(server)
        assert (status, headers["Refresh"]) == (200, str(REFRESH_S))
        write(folder, lines, 0.9)
        later = asked(server)[2]
    assert "data wait" in later
    assert later != early


def test_an_ended_run_is_shown_whole(tmp_path):
    session = made_session(tmp_path, MadeRun(steps=40))
    (tmp_path / "session.json").write_text(document(session, None))
    with served(partial(live_page, tmp_path)) as server:
        assert "What to do" in asked(server)[2]


def test_only_this_machine_is_answered():
    with served(lambda: "<p>secret</p>") as server:
        assert server.server_address[0] == "127.0.0.1"
        assert asked(server, Host="evil.example")[0] == 403
        assert asked(server, Host=f"evil.example:{server.server_port}")[0] == 403
        assert asked(server, Host=f"localhost:{server.server_port}")[2] == "<p>secret</p>"
        assert asked(server, "/etc/passwd")[0] == 404
        assert asked(server, method="POST")[0] == 501


def test_a_report_that_fails_is_an_answer_too():
    def fails():
        raise UsageError("no evidence yet")

    with served(fails) as server:
        assert asked(server)[0] == 500
        assert asked(server)[0] == 500


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(UsageError, match="--keep"):
        watch_run(tmp_path, 0)


@pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason=WHY_NOT)
@pytest.mark.long
def test_a_browser_asks_this_machine_alone(run):
    folder, lines = run
    write(folder, lines, 0.9)
    with served(partial(live_page, folder)) as server, browser(folder / "profile") as one:
        one.open(server.url)
        assert set(one.requested()) <= {server.url, f"{server.url}favicon.ico"}
        assert "data wait" in one.run("return document.body.innerText")
