"""Two runs side by side, and reports as Markdown: figures against those of the runs that were made."""

from __future__ import annotations

import re

import pytest
from made_prescriptions import made
from made_sessions import MadeRun
from replacing import replace
from typer.testing import CliRunner

from headrace.doctor.cli import app
from headrace.doctor.comparison import compare
from headrace.doctor.report import document
from headrace.errors import SessionError

SLOW = MadeRun(steps=60, stages={"decode:PIL.Image.load": 32_000, "collate:default": 2_000})
FAST = replace(SLOW, stages={"decode:PIL.Image.load": 12_000, "collate:default": 2_000})
NOT_TEXT = re.compile("<[^>]*>")


@pytest.fixture(scope="module")
def sessions():
    return made(SLOW), made(FAST)


def test_what_became_faster_and_where_from(sessions):
    found = compare(*sessions)
    assert found.step.is_certain
    assert found.parts[0].name == "data wait"
    decode = found.stages[0]
    assert (decode.name, decode.before_us, decode.after_us) == ("decode:PIL.Image.load", 8_000, 3_000)
    assert [one.is_certain for one in found.stages if one.name.startswith("collate")] == [False]
    assert "as fast" in found.verdict
    assert re.search(r"-5\.0 ms .*decode:PIL\.Image\.load", found.verdict)


def test_the_other_way_round_it_became_slower(sessions):
    forward, back = compare(*sessions), compare(*sessions[::-1])
    assert back.step.change_us == pytest.approx(-forward.step.change_us)
    assert "as long" in back.verdict


def test_a_run_beside_itself(sessions):
    found = compare(sessions[0], sessions[0])
    assert not any(one.is_certain for one in [found.step, *found.parts, *found.stages])
    assert found.settings == []


def test_spread_within_the_runs_is_noise(sessions):
    """One slow batch of 60 moves the mean, and says nothing of the others."""
    outlier = made(replace(SLOW, slow_batches={30: 400_000}))
    assert not compare(sessions[0], outlier).step.is_certain


def test_what_was_set_otherwise_is_named(sessions):
    other = made(replace(FAST, workers=4, facts={"pin_memory": True}))
    settings = {name: (before, after) for name, before, after in compare(sessions[0], other).settings}
    assert settings["num_workers"] == ("2", "4")
    assert settings["pin_memory"][1] == "True"


def test_other_software_is_named():
    runs = [made(FAST), made(FAST)]
    for session, version in zip(runs, ("3.11.7", "3.12.1"), strict=True):
        session.process_of(session.trainers[0]).facts["process"] = {"python": version}
    assert compare(*runs).settings == [("Python", "3.11.7", "3.12.1")]


def test_a_busier_machine_is_a_doubt(sessions):
    busy = made(FAST, columns={"cpu_cores_other": 6.0, "cpu_cores_busy": 8.0})
    quiet = made(SLOW, columns={"cpu_cores_other": 0.1, "cpu_cores_busy": 2.0})
    assert any("Other programs used" in doubt for doubt in compare(quiet, busy).doubts)
    assert compare(*sessions).doubts == []


def test_without_steps_there_is_nothing_to_compare(sessions):
    with pytest.raises(SessionError, match="got none in the second"):
        compare(sessions[0], replace(sessions[1], trainers=[]))


def test_the_command_prints_it(sessions, tmp_path):
    paths = []
    for name, session in zip(("a", "b"), sessions, strict=True):
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(document(session, None))
    done = CliRunner().invoke(app, ["compare", *map(str, paths)])
    assert done.exit_code == 0, done.output
    assert "as fast" in " ".join(done.output.split())
    missing = CliRunner().invoke(app, ["compare", str(paths[0]), str(tmp_path / "none.json")])
    assert missing.exit_code == 125
