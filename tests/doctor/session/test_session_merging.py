"""Sessions of several nodes, merged: the same figures as one doctor over all of them has."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_prescriptions import made
from made_sessions import MadeRun
from typer.testing import CliRunner

from headrace.doctor.causes import diagnose
from headrace.doctor.cli import app
from headrace.doctor.report import document
from headrace.doctor.session import decode_session, encode_session, merged, saved_session
from headrace.doctor.session.merging import _shift
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
