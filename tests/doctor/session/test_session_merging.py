"""Declared records, and ranks of several hosts merged into one session and the document that it is written to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from made_prescriptions import made
from made_sessions import MadeRun, machine, made_session
from probing import all_records, probed
from training_loops import Loop, loader
from typer.testing import CliRunner

from headrace.doctor.causes import diagnose
from headrace.doctor.cli import app
from headrace.doctor.probe.training import steps, windows
from headrace.doctor.report import document
from headrace.doctor.session import decode_session, encode_session, merged, saved_session, trainers
from headrace.doctor.session.evidence import KINDS
from headrace.doctor.session.storage import _shift
from headrace.errors import SessionError

FIRST = MadeRun(rank=0, pid=100, host="one")
SECOND = replace(FIRST, rank=1, pid=500, host="two", stages={"decode:PIL.Image.load": 20_000, "collate:default": 2_000})


@pytest.fixture(scope="module")
def nodes():
    return made(FIRST), made(SECOND)


@pytest.fixture(scope="module")
def together():
    """What one doctor would have seen."""
    return made(FIRST, SECOND)


def figures(session):
    found = diagnose(session)
    ranks = [(one.rank, one.late, one.data_wait_us, one.cause) for one in found.ranks]
    return ranks, [(one.rank, one.mean_us, one.parts) for one in found.budgets], found.wait_share


def test_ranks_are_those_of_one_doctor_over_all(nodes, together):
    ranks, budgets, wait_share = figures(merged(nodes))
    expected_ranks, expected_budgets, expected_share = figures(together)
    assert budgets == expected_budgets
    assert wait_share == expected_share
    assert [one[0] for one in ranks] == [0, 1]
    assert [one[2:] for one in ranks] == [one[2:] for one in expected_ranks]


def test_a_clock_of_its_own_changes_nothing(nodes):
    later = decode_session(encode_session(nodes[1]))
    _shift(later, -7_000_000)
    assert later != nodes[1]
    assert merged([nodes[0], later]) == merged(nodes)


def test_pids_that_two_nodes_share_are_told_apart(nodes):
    same = made(replace(SECOND, pid=FIRST.pid))
    both = merged([nodes[0], same])
    pids = [trainer.pid for trainer in both.trainers]
    assert len(set(pids)) == 2
    expected = figures(merged(nodes))
    assert figures(both)[1:] == expected[1:]
    assert {maker.trainer for maker in both.makers} == set(pids)


def test_what_was_merged_is_left_as_it_was(nodes):
    before = [encode_session(one) for one in nodes]
    merged(nodes)
    assert [encode_session(one) for one in nodes] == before


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ([], "two nodes or more"),
        ([replace(SECOND, rank=0)], "rank 0 on one and on two"),
        ([replace(SECOND, host="one")], "one session a node"),
    ],
)
def test_sessions_that_do_not_belong_together(nodes, others, said):
    with pytest.raises(SessionError, match=said):
        merged([nodes[0], *map(made, others)])


def test_the_command_writes_a_session_that_show_reads(nodes, tmp_path):
    paths = []
    for place, session in enumerate(nodes):
        paths.append(tmp_path / f"{place}.json")
        paths[-1].write_text(document(session, None))
    done = CliRunner().invoke(app, ["merge", *map(str, paths), "--verbose", "--json", str(tmp_path / "all.json")])
    assert done.exit_code == 0, done.output
    assert "2 ranks" in done.output
    assert saved_session(tmp_path / "all.json") == merged(nodes)


@pytest.fixture
def session(tmp_path):
    facts = machine(cores=2.0)
    facts.time, facts.columns, facts.processes = [1, 2], {"cpu_cores_busy": [None, 1.5]}, {100: {"cpu_s": 3}}
    return made_session(tmp_path, MadeRun(gpu=True, steps=5), machines=[facts])


def test_a_session_comes_back_as_it_was(session):
    encoded = encode_session(session)
    assert decode_session(encoded) == session
    assert encode_session(decode_session(encoded)) == encoded


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
        ({"version": 1}, "session of version 2, got version 1"),
        ({"format": "headrace-index"}, "'headrace-session'), got \"format\": 'headrace-index'"),
        ({"steps": "many"}, "`int`, got `str` - at `$.steps`"),
    ],
)
def test_another_document_is_told_what_was_expected_and_where(session, changes, message):
    with pytest.raises(SessionError) as caught:
        decode_session(changed(session, **changes), where="s.json")
    assert str(caught.value).startswith("s.json: expected ")
    assert message in str(caught.value)


COMMON = {"process", "name", "torch", "facts", "end", "loader", "pass", "get", "last", "step", "batch"}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("workers", [0, 1])
def test_what_a_training_writes_fits(tmp_path: Path, workers: int) -> None:
    with probed(tmp_path, observe=False, steps=10_000, digests=2):
        Loop().train(loader(40, num_workers=workers))
        assert torch.is_grad_enabled()
    written = all_records(tmp_path)  # which compares each with the declaration
    assert {line[0] for line in written} >= COMMON | {"digest"}


def test_the_probe_writes_spans_and_windows_that_are_declared():
    letters = {steps.BACKWARD, steps.OPTIMIZER, steps.SKIPPED, steps.COPY, steps.COLLECTIVE, steps.EVALUATION}
    assert letters | {steps.WORK, steps.UNSOURCED} == set(trainers.SPANS)
    assert {windows.OBSERVE, windows.REPLAY} == set(trainers.WINDOWS)


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        (trainers.ReceivedBatches, "get"),
        (trainers.ReplayedBatches, "replayed"),
        (trainers.OptimizerSteps, "step"),
        (trainers.Collectives, "collective"),
        (trainers.BatchPadding, "padding"),
        (trainers.ProducedBatches, "batch"),
    ],
)
def test_every_field_of_a_record_is_a_column(table: type[trainers.Table], kind: str) -> None:
    assert set(KINDS[kind].__struct_fields__) <= set(table.__struct_fields__)
