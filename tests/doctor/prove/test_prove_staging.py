"""Copies for a proof: where they lie, what they hold, and that they go, whatever happens."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from machine_findings import quantities
from processes import eventually, source_paths

from headrace.doctor.prove import staging
from headrace.doctor.prove.staging import StagingError, staged, sweep

LATER = float("inf")

KILLED = """
import sys, time
from headrace.doctor.prove.staging import staged
with staged([[sys.argv[1], sys.argv[2]]], deadline=float("inf")) as pairs:
    print(pairs[0][1], flush=True)
    while True:
        time.sleep(0.1)  # again and again: a signal that comes just before one sleep ends with it
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "train.tar"
    path.parent.mkdir()
    path.write_bytes(os.urandom(100_000))
    return path


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    path = tmp_path / "disk"
    path.mkdir()
    return path


def test_a_file_is_copied_for_as_long_as_it_is_needed(source: Path, disk: Path) -> None:
    with staged([[str(source), str(disk / "headrace-staged" / "train.tar")]], deadline=LATER) as pairs:
        [(original, copy)] = pairs
        assert original == str(source)
        assert Path(copy).read_bytes() == source.read_bytes()
        assert Path(copy).is_relative_to(disk)
    assert not list(disk.iterdir())


def test_of_a_folder_only_what_matches_is_copied(source: Path, disk: Path) -> None:
    for name in ("a.png", "b.txt", "deep/c.png"):
        path = source.parent / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"png")
    for patterns, names in ((["*.png", "*.txt"], {"a.png", "b.txt"}), (["**/*.png"], {"a.png", "deep/c.png"})):
        with staged([[str(source.parent), str(disk / "data"), patterns]], deadline=LATER) as [(_, copy)]:
            assert {str(path.relative_to(copy)) for path in Path(copy).rglob("*") if path.is_file()} == names


def test_a_folder_that_takes_too_long_to_look_at(source: Path, disk: Path) -> None:
    pairs = [[str(source.parent), str(disk / "data")]]
    with pytest.raises(StagingError, match="takes longer to copy"), staged(pairs, deadline=0.0):
        pass
    assert not list(disk.iterdir())


def test_a_folder_is_copied_with_all_that_is_in_it(source: Path, disk: Path) -> None:
    (source.parent / "deep").mkdir()
    (source.parent / "deep" / "1.png").write_bytes(b"png")
    with staged([[str(source.parent), str(disk / "data")]], deadline=LATER) as [(_, copy)]:
        assert (Path(copy) / "deep" / "1.png").read_bytes() == b"png"
        assert (Path(copy) / "train.tar").stat().st_size == 100_000
    assert not list(disk.iterdir())


def test_files_of_one_name_do_not_meet(source: Path, disk: Path) -> None:
    other = source.parent / "other" / source.name
    other.parent.mkdir()
    other.write_bytes(b"other")
    pairs = [[str(source), str(disk / "a")], [str(other), str(disk / "b")]]
    with staged(pairs, deadline=LATER) as copies:
        assert [Path(copy).stat().st_size for _, copy in copies] == [100_000, 5]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_nothing_is_left_after_an_error(source: Path, disk: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), staged([[str(source), str(disk / "x")]], deadline=LATER):
        raise error
    assert not list(disk.iterdir())


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "signum", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGINT]
)
@pytest.mark.long
def test_nothing_is_left_by_a_doctor_that_is_killed(source: Path, disk: Path, signum: signal.Signals) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(source_paths())}
    arguments = [sys.executable, "-c", KILLED, str(source), str(disk / "x")]
    with subprocess.Popen(
        arguments, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        assert Path(process.stdout.readline().strip()).exists()
        process.send_signal(signum)
        process.wait()
    assert eventually(lambda: not list(disk.iterdir()))


def test_what_a_janitor_could_not_remove_goes_with_the_next_run(disk: Path) -> None:
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    left = disk / f"{staging._own_prefix()}{int(dead.stdout)}-1-0"
    left.mkdir()
    mine = disk / f"{staging._own_prefix()}{os.getpid()}-{staging._start_of(os.getpid())}-7"
    mine.mkdir()
    theirs = [disk / "headrace-1-2-3-4", disk / "headrace-notes", disk / "headrace-staged"]
    for folder in theirs:
        folder.mkdir()
    sweep(disk)
    assert sorted(disk.iterdir()) == sorted([mine, *theirs])


def refusal(pairs: list[list[str]], *, deadline: float = LATER) -> str:
    """Why these copies are not made."""
    with pytest.raises(StagingError) as caught, staged(pairs, deadline=deadline):
        pytest.fail("they were made")
    return str(caught.value)


def test_a_copy_that_does_not_fit_is_not_begun(source: Path, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type(staging.shutil.disk_usage(disk))(10**6, 900_000, 120_000)
    monkeypatch.setattr(staging.shutil, "disk_usage", lambda _: usage)
    with staged([[str(source), str(disk / "x")]], deadline=LATER):  # nine tenths of the room
        pass
    why = refusal([[str(source), str(disk / "x")], [str(source), str(disk / "y")]])
    assert [one for one in quantities(why) if "kB" in one] == ["200 kB", "108 kB"]
    assert not list(disk.iterdir())


def test_a_disk_that_others_fill_meanwhile_is_told(source: Path, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(staging.shutil, "copystat", fill)
    why = refusal([[str(source), str(disk / "x")]])
    assert why.startswith(f"{source} cannot be copied to {disk}/headrace-")
    assert why.endswith(f": {os.strerror(errno.ENOSPC)}")
    assert not list(disk.iterdir())


def test_memory_that_others_have_is_no_room(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "available_bytes", lambda: 50_000)
    why = refusal([[str(source), "/dev/shm/headrace-staged/train.tar"]])
    assert quantities(why) == ["100 kB", "45 kB"]
    assert "/dev/shm" in why


def test_a_copy_that_takes_too_long_is_given_up(source: Path, disk: Path) -> None:
    why = refusal([[str(source), str(disk / "x")]], deadline=time.monotonic() - 1)
    assert why.startswith(f"{source} ")
    assert not list(disk.iterdir())
