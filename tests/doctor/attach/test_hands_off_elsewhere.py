"""Runs that change files on other disks and behind links, or whose session lies on another disk."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from file_trees import tree
from undone_runs import Runs, put_back

from headrace.doctor.attach.hands_off import undo_notes


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def test_a_run_on_another_file_system_than_its_session_leaves_no_trace(runs: Runs) -> None:
    """There names cannot be given; a file too large to be copied lightly gets one beside it."""
    (runs.root / "large").write_bytes(bytes(3 << 20))
    before = tree(runs.root)
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="headrace-test-") as session:
        if os.stat(session).st_dev == os.stat(runs.root).st_dev:
            pytest.skip("there is one file system only")
        source = """
        import os, sys
        open('large', 'w').write('x'); open('notes.txt', 'w').write('y'); os.remove('best.ckpt'); os.rename('runs', 'r')
        """
        runs.session = Path(session)
        back = put_back(runs.run(source))
    assert back.failed == []
    assert tree(runs.root) == before


def test_changes_elsewhere_are_left_alone(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("old")
    assert list(undo_notes(put_back(runs.run("open('../elsewhere', 'w').write('new')")))) == []
    assert (tmp_path / "elsewhere").read_text() == "new"


def test_a_link_to_elsewhere_is_followed(runs: Runs, tmp_path: Path) -> None:
    """Checkpoints often are on another disk."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "last").write_text("old")
    (runs.root / "checkpoints").symlink_to(tmp_path / "disk")
    before = tree(tmp_path / "disk")
    put_back(runs.run("open('checkpoints/last', 'w').write('x'); open('checkpoints/new', 'w').write('y')"))
    assert tree(tmp_path / "disk") == before


@pytest.mark.parametrize(
    "source",
    [
        "shutil.rmtree('out/checkpoint-1')",
        "os.chdir('out'); open('checkpoint-1/small', 'a'); shutil.rmtree('checkpoint-1')",
    ],
)
def test_checkpoints_on_another_disk_are_rotated_and_as_before(source: str, runs: Runs) -> None:
    """Removing a folder names what is in it by its descriptor, not by the link that led there."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="headrace-test-") as disk:
        old = Path(disk) / "checkpoints" / "checkpoint-1"
        old.mkdir(parents=True)
        (old / "weights").write_bytes(bytes(3 << 20))
        (old / "small").write_text("x")
        (runs.root / "out").symlink_to(old.parent)
        before = tree(old.parent), runs.now
        back = put_back(runs.run(f"import os, shutil; {source}; assert not os.path.exists({str(old)!r})"))
        assert back.failed == []
        assert (tree(old.parent), runs.now) == before
    assert not [name for name in os.listdir("/dev/shm") if name.startswith(".headrace-undo-")]


def test_a_folder_that_was_moved_away_and_changed_there_is_as_before(runs: Runs, tmp_path: Path) -> None:
    put_back(runs.run("import os; os.rename('runs', '../moved'); open('../moved/first/events', 'a').write('y')"))
    assert runs.now == runs.before
    assert (tmp_path / "moved" / "first" / "events").read_text() == "oney"
