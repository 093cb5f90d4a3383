"""kill -9 at any moment: what has its name is complete, the next run goes on, and all of it can be removed."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pytest
from killed_forks import count_calls, is_killed_at_call, is_killed_within
from staged_trees import copies, expected, stage_all

from headrace.data.staging import StageReport, sources_of, stage, stage_folder, unstage
from headrace.errors import WriteError

MOMENTS, MOMENTS_LONG = 3, 50


def check_and_go_on(source: Path, to: Path) -> None:
    whole = expected(source)
    for name, entry in copies(to).items() if to.exists() else ():
        assert whole[name] == entry
    there = sum(entry[0] != "folder" for entry in copies(to).values()) if to.exists() else 0
    report = stage_all(source, to)
    assert copies(to) == whole
    assert report.kept == there
    assert not list(to.rglob("*.partial"))


def kill_again_and_again(source: Path, folder: Path, moments: int) -> None:
    calls = count_calls(lambda: stage_all(source, folder / "counted"))
    assert calls > 200
    rng = random.Random(moments)
    for number in range(moments):
        to, at = folder / f"to{number}", rng.randrange(1, calls)
        is_killed_at_call(lambda to=to: stage_all(source, to), at)
        check_and_go_on(source, to)
        is_killed_at_call(lambda to=to: unstage(str(to)), rng.randrange(1, calls // 4))
        if to.exists():
            check_and_go_on(source, to)
            unstage(str(to))
        assert not to.exists() or not list(to.iterdir())  # of a kill before it was written down who made it


def test_killed_at_a_few_calls(source, tmp_path):
    kill_again_and_again(source, tmp_path, MOMENTS)


@pytest.mark.long
def test_killed_at_many_calls(source, tmp_path):
    kill_again_and_again(source, tmp_path, MOMENTS_LONG)


@pytest.mark.long
def test_killed_at_any_moment(source, tmp_path):
    begin = time.perf_counter()
    stage_all(source, tmp_path / "timed")
    took_s = time.perf_counter() - begin
    rng = random.Random(0)
    for number in range(MOMENTS_LONG):
        to = tmp_path / f"to{number}"
        is_killed_within(lambda to=to: stage_all(source, to), took_s, rng)
        check_and_go_on(source, to)


def test_killed_while_it_replaces(source, tmp_path):
    """A copy is the old file or the new one at any moment, and never none."""
    old = {path.name: path.read_bytes() for path in (source / "a").glob("*.bin")}
    for path in (source / "a").glob("*.bin"):
        path.write_bytes(path.read_bytes()[::-1] + b"new")
    new = {path.name: path.read_bytes() for path in (source / "a").glob("*.bin")}
    rng = random.Random(0)
    for number in range(MOMENTS):
        to = tmp_path / f"to{number}"
        for name, data in old.items():
            (source / "a" / name).write_bytes(data)
        stage_all(source, to)
        for name, data in new.items():
            (source / "a" / name).write_bytes(data)
        is_killed_at_call(lambda to=to: stage_all(source, to), rng.randrange(300, 2_000))
        for name in old:
            assert (to / "source" / "a" / name).read_bytes() in (old[name], new[name])
        check_and_go_on_replaced(source, to)


def check_and_go_on_replaced(source: Path, to: Path) -> None:
    stage_all(source, to)
    assert copies(to) == expected(source)


def test_a_copy_still_counts_while_a_newer_one_is_incomplete(source, to, monkeypatch):
    """Of a large file that changed, whose new copy failed after its first part."""
    real, written = stage_folder.write_all, []

    def write(descriptor: int, data: memoryview, at: int) -> None:
        written.append(at)
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        real(descriptor, data, at)

    only = source / "large"
    stage_one(only, to)
    only.write_bytes(only.read_bytes()[::-1])
    monkeypatch.setattr(stage_folder, "write_all", write)
    with pytest.raises(WriteError, match="No space left on device"):
        stage_one(only, to)
    monkeypatch.setattr(stage_folder, "write_all", real)
    shutil.copytree(to, to.with_name("again"))
    report = stage_one(only, to)
    assert (report.copied, report.repaired) == (1, [])
    assert (to / "large").read_bytes() == only.read_bytes()
    assert unstage(str(to.with_name("again")))[1:] == (1, only.stat().st_size, [])


@pytest.mark.parametrize("is_damaged", [False, True])
def test_parts_that_are_there_are_not_copied_again(source, to, monkeypatch, is_damaged):
    """Of a large file, which is killed after its first part; that is copied again if its bytes have changed."""
    real, written = stage_folder.write_all, []

    def write(descriptor: int, data: memoryview, at: int) -> None:
        written.append(at)
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        real(descriptor, data, at)

    only = source / "large"
    monkeypatch.setattr(stage_folder, "write_all", write)
    with pytest.raises(OSError, match="No space left on device"):
        stage_one(only, to)
    if is_damaged:
        (partial,) = to.rglob("*.partial")
        partial.write_bytes(b"x" + partial.read_bytes()[1:])
    monkeypatch.setattr(stage_folder, "write_all", lambda *args: (written.append(args[2]), real(*args)))
    written.clear()
    stage_one(only, to)
    assert written == [*([0] if is_damaged else []), 64 << 10, 128 << 10]
    assert (to / "large").read_bytes() == only.read_bytes()


def stage_one(path: Path, to: Path) -> StageReport:
    return stage(sources_of([str(path)]), to=str(to), threads=1)
