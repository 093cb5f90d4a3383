"""Runs of which more is to be said than that they leave no trace: what is kept, listed, refused or lost."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from file_trees import tree
from undone_runs import Runs, put_back, undone_run, working_in

from headrace.doctor.attach.hands_off import (
    WRITTEN,
    exclusive_run,
    holds_files,
    list_folder,
    listing_differences,
    offline_environment,
    undo_notes,
)
from headrace.doctor.attach.injection import FOLDER_VARIABLE
from headrace.doctor.attach.undo import UndoReport
from headrace.doctor.probe.hands_off import UndoJournal
from headrace.doctor.probe.undo_folder import CHEAP_BYTES, UndoFolder
from headrace.errors import UsageError

BIG_BYTES = 3 << 30
"""Of a file with nothing in it."""


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def notes(back: UndoReport) -> dict[str, str]:
    """Texts of its notes by code; the last of each."""
    return dict(undo_notes(back))


def test_a_command_that_kills_itself_leaves_no_trace(runs: Runs) -> None:
    ended = runs.run("import os; open('notes.txt', 'w').write('x'); open('n', 'w').write('y'); os.kill(os.getpid(), 9)")
    assert ended.status == 137
    assert runs.now == runs.before


def test_a_command_that_is_not_there_leaves_no_trace(runs: Runs) -> None:
    assert runs.command(["no-such-program-here"]).status == 127
    assert runs.now == runs.before


def test_what_was_made_is_kept_where_the_session_is(runs: Runs) -> None:
    back = put_back(runs.run("import os; os.mkdir('a'); open('a/b', 'w').write('x')", keep=True))
    assert runs.now == runs.before
    assert (runs.session / WRITTEN / "a" / "b").read_text() == "x"
    assert back.written == runs.session / WRITTEN
    assert notes(back)["put-back"].endswith(f" {back.written}: a/b")


def test_what_was_made_and_what_was_changed_is_said(runs: Runs) -> None:
    back = put_back(runs.run("open('n', 'w'); open('notes.txt', 'w'); open('train.log', 'a').write('3')"))
    assert not holds_files(runs.session)
    assert list(notes(back)) == ["put-back"]
    assert sorted(back.restored) == [str(runs.root / name) for name in ("notes.txt", "train.log")]
    assert back.taken == [str(runs.root / "n")]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        (
            r"[open(f'{n}\x1b\n', 'w') for n in range(7)]; open(b'\xff', 'w')",
            "0\x1b\n, 1\x1b\n, 2\x1b\n, 3\x1b\n, 4\x1b\n and 3 more",
        ),
        (r"open(b'\xff', 'w')", r"\xff"),
    ],
    ids=["five of many", "a name that is no text"],
)
def test_files_are_named(runs: Runs, source: str, names: str) -> None:
    assert notes(put_back(runs.run(source)))["put-back"].partition(": ")[2] == names


def test_what_other_programs_change_is_listed_and_left(runs: Runs) -> None:
    back = put_back(runs.command(["sh", "-c", "echo x > made; echo y >> notes.txt; rm best.ckpt; chmod 700 run.sh"]))
    changed = [(os.path.relpath(path, runs.root), how) for path, how in back.changed]
    assert changed == [("best.ckpt", "removed"), ("made", "created"), ("notes.txt", "changed"), ("run.sh", "changed")]
    assert (runs.root / "made").read_text() == "x\n"
    said = [text.partition(": ")[2] for code, text in undo_notes(back) if code == "unseen-write"]
    assert said == ["notes.txt, run.sh", "made", "best.ckpt"]


def test_what_other_programs_write_into_a_new_folder_is_never_deleted(runs: Runs) -> None:
    put_back(runs.run("import os; os.mkdir('a'); open('a/b', 'w'); os.system('echo x > a/c')"))
    assert runs.now == runs.before
    assert holds_files(runs.session)
    assert (runs.session / WRITTEN / "a" / "c").read_text() == "x\n"


def test_a_large_file_that_is_written_anew_renamed_or_removed_is_as_before(runs: Runs) -> None:
    """It is too large to be copied."""
    for name in ("anew", "removed", "renamed", "replaced"):
        (runs.root / name).touch()
        os.truncate(runs.root / name, BIG_BYTES)
    before = inodes(runs.root)
    source = """
    import os
    open('anew', 'w').write('x'); os.remove('removed'); os.rename('renamed', 'new'); os.replace('new', 'replaced')
    """
    back = put_back(runs.run(source))
    assert back.failed == []
    assert inodes(runs.root) == before


def inodes(root: Path) -> dict[str, tuple[int, int, int]]:
    """What tells files apart, without reading them."""
    stats = {path.name: path.lstat() for path in root.iterdir()}
    return {name: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}


def test_a_large_file_that_is_written_in_place_is_named(runs: Runs) -> None:
    (runs.root / "big").touch()
    os.truncate(runs.root / "big", BIG_BYTES)
    back = put_back(runs.run("f = open('big', 'r+b'); f.seek(5); f.write(b'x'); open('notes.txt', 'w')"))
    said = {code: text.split(": ") for code, text in undo_notes(back)}
    assert said["not-put-back"][0] == said["unseen-write"][1] == "big"
    assert re.findall(r"\d+", said["not-put-back"][1]) == [str(BIG_BYTES), str(1 << 30)]
    assert said["put-back"][1] == "notes.txt"
    assert holds_files(runs.session)


def test_a_large_file_that_is_only_opened_for_writing_is_not_named(runs: Runs) -> None:
    (runs.root / "big").touch()
    os.truncate(runs.root / "big", BIG_BYTES)
    assert list(undo_notes(put_back(runs.run("open('big', 'r+b').read(9)")))) == []


def test_a_large_folder_that_was_renamed_is_as_before(runs: Runs) -> None:
    for number in range(1000):
        (runs.root / "runs" / str(number)).touch()
    before = tree(runs.root)
    source = """
    import os
    os.rename('runs', 'old'); open('old/5', 'w').write('x'); open('old/new', 'w').write('y'); os.remove('old/6')
    os.mkdir('runs'); open('runs/n', 'w').write('z')
    """
    back = put_back(runs.run(source))
    assert back.failed == []
    assert tree(runs.root) == before


def test_a_change_that_cannot_be_written_down_destroys_nothing(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the disk is full, say: then only what the command itself does is done."""
    folder = UndoFolder(str(runs.session))
    Path(folder.kept).mkdir(parents=True)
    journal = UndoJournal(folder, str(runs.root))
    for name in ("notes.txt", "train.log", "new"):
        for mode, flags in (("w", os.O_WRONLY | os.O_TRUNC), ("r+", os.O_RDWR), ("a", os.O_WRONLY | os.O_APPEND)):
            journal.guarded(journal.announced, "open", str(runs.root / name), mode, flags)
        journal.guarded(journal.announced, "os.remove", str(runs.root / name), -1)
    assert {name: said for name, said in runs.now.items() if name} == {
        name: said for name, said in runs.before.items() if name
    }


def test_the_systems_folders_are_nobodys_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/somewhere/tmp")
    journal = UndoJournal(UndoFolder("/home/u/session"), "/")
    places = ("/proc/self/comm", "/dev/null", "/somewhere/tmp/x", "/home/u/session/x", "/home/u/x", "/developer")
    assert [journal.place(place, follow=False) for place in places] == [None] * 4 + ["/home/u/x", "/developer"]


def test_events_of_any_arguments_are_let_pass(runs: Runs) -> None:
    source = """
    import sys
    for event in ('open', 'os.rename', 'os.remove', 'sqlite3.connect', 'os.chmod'):
        for arguments in ((), (None,), (1, 2, 3), ('a', 'b', 'c', 'd', 'e'), (object(), None, 1)):
            sys.audit(event, *arguments)
    open('n', 'w')
    """
    assert put_back(runs.run(source)).taken == [str(runs.root / "n")]


def test_of_a_large_log_what_was_appended_is_cut_off(runs: Runs) -> None:
    large = runs.root / "large.log"
    large.write_bytes(b"of before" * CHEAP_BYTES)
    before = tree(runs.root)
    source = "open('large.log', 'a').write('x' * 99)"
    assert put_back(runs.run(source)).failed == []
    assert tree(runs.root) == before


def test_a_large_log_that_was_written_anew_is_named(runs: Runs) -> None:
    """It was opened to append, and nothing tells of its being cut."""
    (runs.root / "large.log").write_bytes(b"of before" * CHEAP_BYTES)
    source = f"f = open('large.log', 'a+b'); f.truncate(0); f.write(b'x' * {10 * CHEAP_BYTES})"
    assert [path for path, _ in put_back(runs.run(source)).failed] == [str(runs.root / "large.log")]


def test_a_renamed_file_that_another_program_changed_is_named(runs: Runs) -> None:
    source = "import os; os.rename('notes.txt', 'n'); os.system('echo x >> n')"
    back = put_back(runs.run(source))
    assert [path for path, _ in back.failed] == [str(runs.root / "notes.txt")]
    (kept,) = (runs.session / "scratch" / "undo" / "kept").iterdir()
    assert kept.read_text().splitlines()[1:] == ["x"]


def test_reading_is_no_change(runs: Runs) -> None:
    source = """
    import os, sqlite3, pathlib
    open('notes.txt').read(); os.close(os.open('train.log', os.O_RDONLY)); pathlib.Path('best.ckpt').read_bytes()
    os.listdir('runs'); os.stat('runs'); open(os.open('notes.txt', os.O_RDONLY)).read(); sqlite3.connect(':memory:')
    print(open(os.path.join(os.environ['HEADRACE_DOCTOR'], 'scratch/undo/journal'), 'rb').read())
    """
    assert runs.run(source).last_lines == ["b''"]


def test_a_change_is_known_once(runs: Runs) -> None:
    source = """
    import os
    for n in range(9):
        open('notes.txt', 'w').write('x'); open('n', 'w').write('y')
    journal = open(os.path.join(os.environ['HEADRACE_DOCTOR'], 'scratch/undo/journal'), 'rb').read()
    print(journal.count(b'/notes.txt'), journal.count(b'/n\\0'))
    """
    assert runs.run(source).last_lines == ["1 1"]


def test_a_run_whose_settings_have_no_scratch_is_left_alone(runs: Runs) -> None:
    """As with --observe."""
    from attach_runs import observed

    with working_in(runs.root):
        ended = observed(["python", "-c", "open('n', 'w')"], runs.session)
    assert ended.put_back is None
    assert (runs.root / "n").exists()


def test_two_at_once_in_a_folder_are_refused(runs: Runs) -> None:
    runs_below = runs.root / "runs"
    with exclusive_run(runs.root):
        for folder in (runs.root, runs_below):
            with pytest.raises(UsageError, match=f"got {re.escape(str(runs.root))}, .*--observe"):
                undone_run(["true"], folder, runs.session)
    with exclusive_run(runs_below), pytest.raises(UsageError, match="in which nothing else is measured"):
        undone_run(["true"], runs.root, runs.session)


def test_two_at_once_in_folders_beside_each_other_are_not(runs: Runs) -> None:
    with exclusive_run(runs.root / "runs" / "first"):
        assert undone_run(["true"], runs.root / "runs" / "second", runs.session).status == 0


def test_a_folder_of_too_many_files_is_not_listed(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.doctor.attach.hands_off.MOST_LISTED", 3)
    back = put_back(runs.run("open('n', 'w')"))
    assert runs.now == runs.before
    assert notes(back)["not-listed"].startswith(f"{runs.root} ")
    assert "3 entries" in notes(back)["not-listed"]
    assert listing_differences(None, list_folder(runs.root, runs.session)) == []


def test_trackers_are_offline_and_write_to_the_session(tmp_path: Path) -> None:
    made = offline_environment(
        {"WANDB_MODE": "online", "WANDB_DIR": "/home/u", "MLFLOW_RUN_ID": "7", "PATH": "/bin"}, tmp_path
    )
    assert made == {
        "PATH": "/bin",
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(tmp_path),
        "NEPTUNE_MODE": "offline",
        "NEPTUNE_DATA_DIRECTORY": str(tmp_path),
        "NEPTUNE_LOG_DIRECTORY": str(tmp_path),
        "SWANLAB_MODE": "offline",
        "CLEARML_OFFLINE_MODE": "1",
        "COMET_START_ONLINE": "0",
        "COMET_OFFLINE_DIRECTORY": str(tmp_path),
        "MLFLOW_TRACKING_URI": f"file://{tmp_path}/mlflow",
        "MLFLOW_REGISTRY_URI": f"file://{tmp_path}/mlflow",
    }


@pytest.mark.parametrize(("name", "value"), [("WANDB_MODE", "disabled"), ("NEPTUNE_MODE", "debug")])
def test_a_tracker_that_is_off_stays_as_it_is(name: str, value: str, tmp_path: Path) -> None:
    assert offline_environment({name: value}, tmp_path)[name] == value


def test_the_command_has_trackers_offline(runs: Runs) -> None:
    source = "import os; print(os.environ['WANDB_MODE'], os.path.isdir(os.environ['WANDB_DIR']))"
    assert runs.run(source).last_lines == ["offline True"]
    assert FOLDER_VARIABLE not in os.environ
