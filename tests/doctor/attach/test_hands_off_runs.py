"""Runs of which more is to be said than that they leave no trace: what is kept, listed, refused or lost."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from attach_runs import observed
from file_trees import tree
from undone_runs import Runs, put_back, undone_run, working_in

from headrace.doctor.attach.hands_off import WRITTEN, exclusive_run, holds_files
from headrace.doctor.probe.hands_off import UndoJournal, read_records
from headrace.errors import UsageError

BIG_BYTES = 3 << 30
"""Size of a file with nothing in it, too large to be copied."""


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def big_files(root: Path, *names: str) -> dict[str, tuple[int, int, int]]:
    """Make files in the project that are too large to be copied."""
    for name in names:
        (root / name).touch()
        os.truncate(root / name, BIG_BYTES)
    return inodes(root)


def inodes(root: Path) -> dict[str, tuple[int, int, int]]:
    """What tells files apart, without reading them."""
    stats = {path.name: path.lstat() for path in root.iterdir()}
    return {name: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}


def test_what_was_made_is_kept_where_the_session_is(runs: Runs) -> None:
    source = "import os; os.mkdir('a'); open('a/b', 'w').write('x'); os.rename('notes.txt', 'a/c')"
    back = put_back(runs.run(source, keep=True))
    assert runs.now == runs.before
    assert tree(runs.session / WRITTEN).keys() == {"", "a", "a/b"}
    assert (runs.session / WRITTEN / "a" / "b").read_text() == "x"
    assert back == [("put-back", f"restored: notes.txt; created by the run and moved to {runs.session}/written: a/b")]


def test_a_second_run_keeps_its_files_beside_those_of_the_first(runs: Runs) -> None:
    for text in ("first", "second"):
        put_back(runs.run(f"open('n', 'w').write('{text}'); open('notes.txt', 'a').write('x')", keep=True))
    assert runs.now == runs.before
    assert {path.read_text() for path in (runs.session / WRITTEN).iterdir()} == {"first", "second"}


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "open('n', 'w'); open('notes.txt', 'w'); open('train.log', 'a').write('3')",
            "restored: notes.txt, train.log; created by the run and deleted: n",
        ),
        (
            r"[open(f'{n}\x1b\n', 'w') for n in range(7)]; open(b'\xff', 'w')",
            "created by the run and deleted: 0\x1b\n, 1\x1b\n, 2\x1b\n, 3\x1b\n, 4\x1b\n and 3 more",
        ),
        (r"open(b'\xff', 'w')", r"created by the run and deleted: \xff"),
    ],
    ids=["made and changed", "five of many", "a name that is no text"],
)
def test_files_are_named(runs: Runs, source: str, said: str) -> None:
    assert put_back(runs.run(source)) == [("put-back", said)]
    assert not holds_files(runs.session)


def test_what_other_programs_change_is_listed_and_left(runs: Runs) -> None:
    back = put_back(runs.command(["sh", "-c", "echo x > made; echo y >> notes.txt; rm best.ckpt; chmod 700 run.sh"]))
    assert [text.partition(" and")[::2] for code, text in back if code == "unseen-write"] == [
        ("changed", " not restored: notes.txt, run.sh"),
        ("created", " not restored: made"),
        ("removed", " not restored: best.ckpt"),
    ]
    assert (runs.root / "made").read_text() == "x\n"


def test_what_other_programs_write_into_a_new_folder_is_never_deleted(runs: Runs) -> None:
    put_back(runs.run("import os; os.mkdir('a'); open('a/b', 'w'); os.system('echo x > a/c'); open('a/c', 'a')"))
    assert runs.now == runs.before
    assert holds_files(runs.session)
    assert (runs.session / WRITTEN / "a" / "c").read_text() == "x\n"


def test_a_large_file_that_is_written_anew_renamed_or_removed_is_as_before(runs: Runs) -> None:
    before = big_files(runs.root, "anew", "removed", "renamed", "replaced")
    source = """
    import os
    open('anew', 'w').write('x'); os.remove('removed'); os.rename('renamed', 'new'); os.replace('new', 'replaced')
    """
    assert "not-put-back" not in dict(put_back(runs.run(source)))
    assert inodes(runs.root) == before


@pytest.mark.parametrize("change", ["f = open('big', 'r+b'); f.seek(5); f.write(b'x')", "open('big', 'a').write('x')"])
def test_a_large_file_that_is_written_in_place_is_named(runs: Runs, change: str) -> None:
    big_files(runs.root, "big")
    said = dict(put_back(runs.run(f"{change}; open('notes.txt', 'w')")))
    assert said["not-put-back"].startswith("big: it was too large to be copied")
    assert said["unseen-write"].endswith(": big")
    assert said["put-back"] == "restored: notes.txt"
    assert holds_files(runs.session)


def test_a_large_file_that_is_only_opened_for_writing_is_not_named(runs: Runs) -> None:
    big_files(runs.root, "big")
    assert put_back(runs.run("open('big', 'r+b').read(9)")) == []


def test_a_file_without_space_for_its_copy_is_named(runs: Runs) -> None:
    """And stays so: what was written meanwhile is not taken for its former content."""
    source = """
    import shutil
    usage, shutil.disk_usage = shutil.disk_usage, lambda _: shutil._ntuple_diskusage(9, 9, 0)
    open('notes.txt', 'a').write('x')
    shutil.disk_usage = usage
    open('notes.txt', 'a').write('y')
    """
    said = dict(put_back(runs.run(source)))
    assert said["not-put-back"].startswith("notes.txt: ")
    assert (runs.root / "notes.txt").read_text() == "notes of before\nxy"


def test_a_change_that_cannot_be_written_down_destroys_nothing(runs: Runs) -> None:
    """Where the disk is full, say: the former content is named."""
    source = """
    import os, resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, -1))
    os.remove('notes.txt')
    resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
    """
    said = dict(put_back(runs.run(source)))
    assert said["not-put-back"].endswith("/kept: it holds former contents of files that no record names")
    (kept,) = (runs.session / "scratch" / "undo" / "kept").iterdir()
    assert kept.read_text() == "notes of before\n"


def test_the_systems_folders_are_nobodys_work(tmp_path: Path) -> None:
    undo = tmp_path / "scratch" / "undo"
    (undo / "kept").mkdir(parents=True)
    (undo / "owner").write_text("/")
    (undo / "journal").touch()
    journal = UndoJournal(str(tmp_path))
    for path in ("/proc/x", "/dev/x", "/tmp/x", f"{tmp_path}/x", "/home-of-u/x", "/developer"):
        journal.guarded(journal.announced, "os.mkdir", path, 0o777, -1)
    assert [record.path for record in read_records(str(tmp_path))[0]] == [
        "/home-of-u/x",
        "/home-of-u",
        "/developer",
        "/",
    ]


def test_a_renamed_file_that_another_program_changed_is_named(runs: Runs) -> None:
    source = "import os; os.rename('notes.txt', 'n'); os.system('echo x >> n')"
    assert dict(put_back(runs.run(source)))["not-put-back"].startswith("notes.txt: ")
    (kept,) = (runs.session / "scratch" / "undo" / "kept").iterdir()
    assert kept.read_text().splitlines()[1:] == ["x"]


def test_reading_is_no_change(runs: Runs) -> None:
    source = """
    import os, pathlib
    open('notes.txt').read(); os.close(os.open('train.log', os.O_RDONLY)); pathlib.Path('best.ckpt').read_bytes()
    os.listdir('runs'); os.stat('runs'); open(os.open('notes.txt', os.O_RDONLY)).read()
    print(open(os.path.join(os.environ['HEADRACE_DOCTOR'], 'scratch/undo/journal'), 'rb').read())
    """
    assert runs.run(source).last_lines == ["b''"]


def test_a_change_is_known_once(runs: Runs) -> None:
    source = """
    import os
    for n in range(9):
        open('notes.txt', 'w').write('x'); open('n', 'w').write('y'); open('train.log', 'a').write('z')
    undo = os.path.join(os.environ['HEADRACE_DOCTOR'], 'scratch/undo/')
    journal = open(undo + 'journal', 'rb').read()
    print([journal.count(name) for name in (b'/notes.txt"', b'/n"', b'/train.log"')], len(os.listdir(undo + 'kept')))
    """
    assert runs.run(source).last_lines == ["[1, 1, 1] 3"]


def test_a_run_whose_settings_have_no_scratch_is_left_alone(runs: Runs) -> None:
    """As with --observe."""
    with working_in(runs.root):
        ended = observed(["python", "-c", "open('n', 'w')"], runs.session)
    assert ended.put_back == []
    assert (runs.root / "n").exists()


def test_two_at_once_in_a_folder_are_refused(runs: Runs) -> None:
    runs_below = runs.root / "runs"
    with exclusive_run(str(runs.root)):
        for folder in (runs.root, runs_below):
            with pytest.raises(UsageError, match=f"got {re.escape(str(runs.root))}, .*--observe"):
                undone_run(["true"], folder, runs.session)
    with exclusive_run(str(runs_below)), pytest.raises(UsageError, match="in which nothing else is measured"):
        undone_run(["true"], runs.root, runs.session)
    with exclusive_run(str(runs_below / "first")):
        assert undone_run(["true"], runs_below / "second", runs.session).status == 0


def test_a_folder_of_too_many_files_is_not_listed(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.doctor.attach.hands_off.MOST_LISTED", 3)
    said = dict(put_back(runs.run("open('n', 'w')")))
    assert runs.now == runs.before
    assert "3 entries" in said["not-listed"]


def test_changes_elsewhere_are_left_alone(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("old")
    assert put_back(runs.run("open('../elsewhere', 'w').write('new')")) == []
    assert (tmp_path / "elsewhere").read_text() == "new"


def test_a_file_that_is_brought_from_elsewhere_stays(runs: Runs, tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    back = put_back(runs.run(f"import os; os.rename({str(mine)!r}, 'brought.txt'); open('n', 'w').write('x')"))
    assert [path for path in runs.now if path not in runs.before] == ["brought.txt"]
    assert ("unseen-write", "created and not restored: brought.txt") in back


@pytest.fixture
def other_disk(tmp_path: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="other-disk-") as folder:
        if os.stat(folder).st_dev == os.stat(tmp_path).st_dev:
            pytest.skip("there is one file system only")
        yield Path(folder)
    assert not [name for name in os.listdir("/dev/shm") if name.startswith(".headrace-undo-")]


def test_a_run_on_another_file_system_than_its_session_leaves_no_trace(runs: Runs, other_disk: Path) -> None:
    """Saved files are then outside of the session, as far up as possible."""
    inode = inodes(runs.root)["notes.txt"]
    source = """
    open('notes.txt', 'w').write('y'); open('train.log', 'a').write('z')
    import os; os.remove('best.ckpt'); os.rename('runs', 'r')
    """
    runs.session = other_disk
    assert "not-put-back" not in dict(put_back(runs.run(source)))
    assert runs.now == runs.before
    assert inodes(runs.root)["notes.txt"] == inode


@pytest.mark.parametrize(
    "source",
    [
        "shutil.rmtree('out/checkpoint-1')",
        "os.chdir('out'); open('checkpoint-1/small', 'a').write('y'); shutil.rmtree('checkpoint-1')",
    ],
)
def test_checkpoints_on_another_disk_are_rotated_and_as_before(source: str, runs: Runs, other_disk: Path) -> None:
    """Removing a folder names what is in it by its descriptor, not by the link that led there."""
    old = other_disk / "checkpoints" / "checkpoint-1"
    old.mkdir(parents=True)
    (old / "weights").write_bytes(bytes(3 << 20))
    (old / "small").write_text("x")
    (runs.root / "out").symlink_to(old.parent)
    before = tree(old.parent), runs.now
    back = put_back(runs.run(f"import os, shutil; {source}; assert not os.path.exists({str(old)!r})"))
    assert "not-put-back" not in dict(back)
    assert (tree(old.parent), runs.now) == before
