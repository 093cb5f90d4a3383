"""What unstaging removes, and what it must leave."""

from __future__ import annotations

import os
import shutil

import pytest
from staged_trees import copies, stage_all

from headrace.data.staging import unstage
from headrace.data.staging.stage_folder import locked_folder
from headrace.errors import NotFoundError, WriteError


def test_all_of_ours_goes_with_the_folder(source, to):
    total = stage_all(source, to).files
    (to / "source" / "large.headrace").write_bytes(b"an index")
    assert unstage(str(to)).removed == total
    assert not to.exists()
    assert (source / "large").exists()


def test_a_folder_that_was_there_before_stays(source, to):
    to.mkdir()
    stage_all(source, to)
    unstage(str(to))
    assert not list(to.iterdir())


def test_what_is_not_ours_stays(source, to):
    stage_all(source, to)
    (to / "source" / "a" / "mine").write_bytes(b"mine")
    (to / "mine").mkdir()
    unstage(str(to))
    assert set(copies(to, ours=True)) == {b"source", b"source/a", b"source/a/mine", b"mine"}


def test_a_copy_that_was_written_since_stays_unless_forced(source, to):
    total = stage_all(source, to).files
    (to / "source" / "large").write_bytes(b"somebody's notes")
    report = unstage(str(to))
    assert (report.removed, report.left) == (total - 1, ["source/large"])
    assert (to / "source" / "large").read_bytes() == b"somebody's notes"
    report = unstage(str(to), force=True)
    assert (report.removed, report.left) == (1, [])
    assert not to.exists()


@pytest.mark.parametrize("force", [False, True])
def test_nothing_is_removed_through_a_link(source, to, tmp_path, force):
    stage_all(source, to)
    victim = tmp_path / "victim"
    shutil.move(to / "source" / "a", victim)
    (to / "source" / "a").symlink_to(victim)
    before = copies(victim)
    unstage(str(to), force=force)
    assert copies(victim) == before
    assert os.path.islink(to / "source" / "a")


def test_again_after_it_was_broken_off(source, to):
    stage_all(source, to)
    (to / "source" / "large").unlink()
    unstage(str(to))
    assert not to.exists()


def test_nothing_staged_there(to):
    with pytest.raises(NotFoundError, match="expected a folder that was staged into, got none"):
        unstage(str(to))
    assert not to.exists()


def test_while_somebody_stages_there(source, to):
    stage_all(source, to)
    before = copies(to, ours=True)
    with (
        locked_folder(os.fsencode(to), wait=False),
        pytest.raises(WriteError, match="got another process that stages into it"),
    ):
        unstage(str(to))
    assert copies(to, ours=True) == before
