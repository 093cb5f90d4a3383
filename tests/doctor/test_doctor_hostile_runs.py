"""Runs that go wrong, whole: the script's own exit status, a report that says what happened, and cut evidence."""

from __future__ import annotations

import os
import random
import sys

import pytest
from attach_runs import stub_torch
from observed_runs import observe, python
from probing import merged
from processes import source_paths
from report_pages import said

from headrace.doctor.causes import diagnose

CONTROLS = {chr(code) for code in (*range(9), *range(11, 32), 127, *range(128, 160), 0x202E, 0x2066)}
"""Characters that a terminal obeys; line ends and tabs are the report's own."""


@pytest.mark.long  # test_verdict.py has what names it, and `odd` a script that fails
def test_a_killed_worker_is_named_and_the_script_fails_as_it_would(tmp_path):
    observed = observe(python("hostile.py", "worker-killed"), tmp_path)
    assert observed.status == 1
    assert observed.session.outcome.why == "failed"
    killed = next(finding for finding in observed.diagnosis.findings if finding.code == "killed")
    assert "Worker" in killed.text
    assert killed.text in " ".join(observed.out.split())


def test_a_crash_is_reported_with_its_status_and_last_lines(odd):
    assert odd.observed.status == 1
    assert any("ValueError" in (process.error or "") for process in odd.observed.session.processes)
    assert "ValueError: [bold red]x[/]" in odd.observed.out


@pytest.mark.long
def test_a_script_without_a_dataloader_keeps_its_exit_status_and_is_told_so(tmp_path):
    """With a stand-in for torch, which is only imported."""
    paths = os.pathsep.join([str(stub_torch(tmp_path / "site")), *source_paths()])
    command = [sys.executable, "-c", "import sys, torch; sys.exit(7)"]
    observed = observe(command, tmp_path, environment={"PYTHONPATH": paths})
    assert observed.status == 7
    assert observed.diagnosis.wait_share is None
    assert "exit" in said(observed.diagnosis) or "7" in said(observed.diagnosis)


def test_hostile_texts_reach_the_terminal_as_plain_ones(odd):
    assert not CONTROLS.intersection(odd.observed.out)
    assert "[bold red]x[/]" in odd.observed.out  # the markup is data, and shown as it is


def test_hostile_texts_are_only_read_on_the_page(odd):
    page = (odd.folder / "report.html").read_text(encoding="utf-8")
    assert not CONTROLS.intersection(page)
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


@pytest.mark.long
def test_a_hung_worker_is_named_with_its_stack(tmp_path):
    """10 s is what any batch is given; the script's own timeout comes after that."""
    observed = observe(python("hostile.py", "worker-hung"), tmp_path)
    assert observed.status == 1
    hung = next(finding for finding in observed.diagnosis.findings if finding.code == "stalled-sample")
    assert "hang_for_good" in " ".join(stack for process in observed.session.processes for stack in process.stacks)
    assert hung.text in " ".join(observed.out.split())
    assert "hang_for_good" in hung.text


@pytest.fixture
def evidence(odd):
    """Of a whole run, with two workers: each file's name and content."""
    files = {path.name: path.read_bytes() for path in (odd.folder / "evidence").iterdir()}
    assert len(files) == 3
    return odd.folder, files


def cuts(data: bytes) -> list[int]:
    """Nothing, the first bytes, and around and within every line."""
    ends = [position + 1 for position, byte in enumerate(data) if byte == ord("\n")]
    within = [random.Random(end).randrange(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    return sorted({0, 1, 2, *within, *(end + by for end in ends for by in (-1, 0, 1) if end + by <= len(data))})


@pytest.mark.parametrize("one_in", [8, pytest.param(1, marks=pytest.mark.long)])
def test_every_file_may_end_anywhere(evidence, tmp_path, one_in):
    folder, files = evidence
    (tmp_path / "evidence").mkdir()
    (tmp_path / "settings.json").write_bytes((folder / "settings.json").read_bytes())
    for cut_short, whole in files.items():
        for name, data in files.items():
            (tmp_path / "evidence" / name).write_bytes(data)
        for length in random.Random(one_in).sample(found := cuts(whole), len(found) // one_in):
            (tmp_path / "evidence" / cut_short).write_bytes(whole[:length])
            session = merged(tmp_path)
            assert diagnose(session).verdict
            is_cut = length not in (0, len(whole)) and not whole[:length].endswith(b"\n")
            assert any(process.cut for process in session.processes) == is_cut or length < whole.index(b"\n") + 1
