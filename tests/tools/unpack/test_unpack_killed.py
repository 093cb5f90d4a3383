"""kill -9 at any moment: what has its name is complete, nothing is left after the next run, and that is right."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from killed_forks import count_calls, is_killed_at_call, is_killed_within
from made_archives import MTIME, file, noise, ordinary, write_tar, write_zip
from unpacked_trees import tree

from headrace.tools.unpack import unpack

Make = Callable[[Path], Path]
KINDS: dict[str, Make] = {
    "tar": lambda folder: write_tar(folder / "a.tar", ordinary()),
    "gzip": lambda folder: write_tar(folder / "a.tar.gz", ordinary(), how="w:gz"),
    "zip": lambda folder: write_zip(folder / "a.zip", [(f"a/{i % 3}/{i}", noise(i * 997, seed=i)) for i in range(40)]),
}
MOMENTS, MOMENTS_LONG = 2, 50


@pytest.fixture
def prepared(request, tmp_path):
    """An archive, and what is to come of it."""
    path = KINDS[request.param](tmp_path)
    unpack([path], to=tmp_path / "whole")
    return path, tree(tmp_path / "whole")


def assert_complete_as_far_as_it_goes(target: Path, whole: dict[bytes, tuple[object, ...]]) -> int:
    """How many files are there. Folders get their times last, and which name of a file is the first may differ."""
    files = 0
    for name, entry in tree(target).items() if target.exists() else ():
        if name.startswith(b".headrace-unpack"):
            continue
        expected = whole[name]
        assert entry[0] == expected[0]
        if entry[0] == "file":
            files += 1
            assert entry[:4] == expected[:4]
        if entry[0] == "link":
            assert entry == expected
    return files


def kill_and_go_on(path: Path, target: Path, whole: dict[bytes, tuple[object, ...]], kill: Callable[..., bool]) -> None:
    kill(lambda: unpack([path], to=target, threads=2))
    there = assert_complete_as_far_as_it_goes(target, whole)
    (report,) = unpack([path], to=target, threads=2)
    assert tree(target) == whole
    assert report.kept >= there - report.links


def kill_again_and_again(path: Path, folder: Path, whole: dict[bytes, tuple[object, ...]], moments: int) -> None:
    calls = count_calls(lambda: unpack([path], to=folder / "counted", threads=2))
    assert calls > 200
    rng = random.Random(moments)
    for number in range(moments):
        at = rng.randrange(1, calls)
        kill_and_go_on(path, folder / f"target{number}", whole, lambda work, at=at: is_killed_at_call(work, at))


@pytest.mark.parametrize("prepared", KINDS, indirect=True)
@pytest.mark.one_in(4)
def test_killed_at_a_few_calls(prepared, tmp_path):
    kill_again_and_again(*prepared[:1], tmp_path, prepared[1], MOMENTS)


@pytest.mark.long
@pytest.mark.parametrize("prepared", KINDS, indirect=True)
def test_killed_at_many_calls(prepared, tmp_path):
    kill_again_and_again(*prepared[:1], tmp_path, prepared[1], MOMENTS_LONG)


@pytest.mark.long
@pytest.mark.parametrize("prepared", KINDS, indirect=True)
def test_killed_at_any_moment(prepared, tmp_path):
    path, whole = prepared
    begin = time.perf_counter()
    unpack([path], to=tmp_path / "timed", threads=2)
    took_s = time.perf_counter() - begin
    rng = random.Random(0)
    for number in range(MOMENTS_LONG):
        kill_and_go_on(path, tmp_path / f"target{number}", whole, lambda work: is_killed_within(work, took_s, rng))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", ["tar", "gzip"])
def test_killed_while_it_overwrites(tmp_path, how):
    """What is replaced is the old file or the new one at any moment, and never none."""
    members = {f"{number}": (noise(3_000, seed=number), noise(5_000, seed=number)) for number in range(20)}
    mode, path = ("w", tmp_path / "a.tar") if how == "tar" else ("w:gz", tmp_path / "a.tar.gz")
    write_tar(path, [file(name, new, mtime=MTIME) for name, (_, new) in members.items()], how=mode)
    rng = random.Random(0)
    for number in range(MOMENTS):
        target = tmp_path / f"target{number}"
        target.mkdir()
        for name, (old, _) in members.items():
            (target / name).write_bytes(old)

        def work(target: Path = target) -> None:
            unpack([path], to=target, threads=2, overwrite=True)

        is_killed_at_call(work, rng.randrange(500, 4_000))
        for name, versions in members.items():
            assert (target / name).read_bytes() in versions
        work()
        assert {entry.name: entry.read_bytes() for entry in target.iterdir()} == {
            name: new for name, (_, new) in members.items()
        }
