"""Building the indices of many files: which, where they lie, what is said of each, and what a kill leaves."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

import pytest
from killed_forks import count_calls, is_killed_at_call, is_killed_within
from processes import finish, interrupt_when_ready, source_paths, start_python
from typer.testing import CliRunner, Result

import headrace.data as data
from headrace.data.archives import tar_index
from headrace.data.sources.index_building import IndexedFile, UnindexedFile, build_indices, index_file, indexable_paths
from headrace.data.storage import file_writing
from headrace.errors import DatasetError, EmptyDatasetError, HeadraceError, NotFoundError
from headrace.tools.command_line import app

MEMBERS = {"1.jpg": b"one", "1.cls": b"0", "2.jpg": b"two", "x/3.jpg": b"three"}
MOMENTS, MOMENTS_LONG = 2, 50


def write_zip(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in MEMBERS.items():
            archive.writestr(name, content)
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["index", *map(str, arguments)])


def test_says_what_there_is(make_tar):
    path = make_tar("a.tar", MEMBERS)
    first, second = (index_file(str(path), cache=None) for _ in range(2))
    size = path.stat().st_size
    assert first == IndexedFile(str(path), "tar", size, 4, 3, f"{path}.headrace", True, first.wall_s)
    assert second == IndexedFile(str(path), "tar", size, 4, 3, f"{path}.headrace", False, second.wall_s)
    assert len(data.open(path)) == 3


def test_an_index_in_the_cache(make_tar, tmp_path):
    path = make_tar("a.tar", MEMBERS)
    cache = tmp_path / "cache"
    done = index_file(str(path), cache=str(cache))
    assert (done.built, Path(done.kept_at).parent) == (True, cache)
    assert names(tmp_path) == ["a.tar", "cache"]
    assert not index_file(str(path), cache=str(cache)).built


def test_kinds_of_files(make_tar, tmp_path):
    make_tar("a.tar", MEMBERS).rename(tmp_path / "named otherwise")
    write_zip(tmp_path / "b.zip").rename(tmp_path / "zip named otherwise")
    rows = "".join(f"{number}.jpg,{number}\n" for number in range(120_000))
    (tmp_path / "list.csv").write_text("path,label\n" + rows)
    found = [index_file(str(tmp_path / name), cache=None) for name in ("named otherwise", "zip named otherwise")]
    assert [(one.kind, one.members) for one in found] == [("tar", 4), ("zip", 4)]
    rows_kept = index_file(str(tmp_path / "list.csv"), cache=None)
    assert (rows_kept.kind, rows_kept.members, rows_kept.samples, rows_kept.built) == (
        "manifest",
        120_000,
        120_000,
        True,
    )
    assert rows_kept.kept_at == str(tmp_path / "list.csv.headrace")
    (tmp_path / "short.csv").write_text("path,label\n1.jpg,1\n")
    assert index_file(str(tmp_path / "short.csv"), cache=None).kept_at is None


def test_members_that_make_no_samples(make_tar):
    path = make_tar("a.tar", {f"{number}.e{number}": b"x" for number in range(300)})
    done = index_file(str(path), cache=None)
    assert (done.members, done.samples, done.built) == (300, None, True)


def test_folders_patterns_and_lists_of_them(make_tar, tmp_path):
    for name in ("b.tar", "a.tar", "c.TAR"):
        make_tar(name, MEMBERS)
    write_zip(tmp_path / "d.zip")
    index_file(str(tmp_path / "a.tar"), cache=None)
    for name in ("notes.txt", "list.csv", "e.tar.gz"):
        (tmp_path / name).write_text("x")
    assert indexable_paths([str(tmp_path / "{b,a}.tar"), str(tmp_path / "*.tar")])[:2] == [
        str(tmp_path / "b.tar"),
        str(tmp_path / "a.tar"),
    ]
    (tmp_path / "folder.tar").mkdir()
    found = indexable_paths([str(tmp_path)])
    assert [os.path.basename(path) for path in found] == ["a.tar", "b.tar", "c.TAR", "d.zip"]
    with pytest.raises(NotFoundError, match=r"/z\.tar: expected a file or a folder, got nothing\. Did you mean"):
        indexable_paths([str(tmp_path / "z.tar")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(EmptyDatasetError, match=r"expected a folder with files of which an index is kept \(\.tar,"):
        indexable_paths([str(tmp_path / "empty")])


def test_files_are_indexed_side_by_side_and_a_bad_one_keeps_no_other_from_it(make_tar, tmp_path):
    paths = [str(make_tar(f"{number}.tar", MEMBERS)) for number in range(6)]
    Path(paths[2]).write_bytes(b"no tar at all" * 100)
    seen = []
    outcomes = build_indices(paths, cache=None, threads=3, tick=lambda state: seen.append(state.done))
    assert [outcome.path for outcome in outcomes] == paths
    assert [isinstance(outcome, IndexedFile) for outcome in outcomes] == [True, True, False, True, True, True]
    assert isinstance(outcomes[2], UnindexedFile)
    assert "expected a tar header" in str(outcomes[2].error)
    assert seen[-1] <= 6
    assert not any(name.endswith(file_writing.PARTIAL_SUFFIX) for name in names(tmp_path))


def test_nowhere_to_keep_it_is_an_error(make_tar, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = make_tar("a.tar", MEMBERS)
    monkeypatch.setattr("headrace.data.storage.safetensors.write_arrays", full)
    (outcome,) = build_indices([str(path)], cache=None, threads=1)
    assert isinstance(outcome, UnindexedFile)
    assert isinstance(outcome.error, DatasetError)
    assert "cannot be cached" in str(outcome.error)
    assert "No space left on device" in str(outcome.error)
    assert names(path.parent) == ["a.tar"]


def test_a_read_only_folder_keeps_it_in_the_cache(make_tar, own_cache, as_nobody, monkeypatch):
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
        path = make_tar("a.tar", MEMBERS).rename(Path(folder) / "a.tar")
        os.chmod(path, 0o644)
        os.chmod(folder, 0o555)
        os.chmod(cache, 0o777)
        monkeypatch.setenv("HEADRACE_CACHE", cache)
        with as_nobody():
            first, second = (index_file(str(path), cache=None) for _ in range(2))
        os.chmod(folder, 0o755)
        assert (first.built, second.built) == (True, False)
        assert os.path.dirname(first.kept_at) == cache
        assert names(Path(folder)) == ["a.tar"]


NAMESPACE = ["unshare", *([] if os.geteuid() == 0 else ["-r"]), "-m", "sh", "-c"]


@pytest.mark.long
def test_a_file_system_that_is_mounted_read_only(make_tar, own_cache):
    path = make_tar("a.tar", MEMBERS)
    bind = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1"'
    if subprocess.run([*NAMESPACE, bind, "sh", str(path.parent)], capture_output=True, check=False).returncode != 0:
        pytest.skip("this system lets nobody mount anything (unshare -m)")
    source = "import sys; from headrace.tools.command_line import main; sys.argv[0] = 'headrace'; main()"
    command = [*NAMESPACE, f'{bind} && exec "$0" -c "$2" index "$3" --json -', sys.executable, str(path.parent), source]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(source_paths())}
    done = subprocess.run([*command, str(path)], capture_output=True, text=True, env=env, check=False)
    (file,) = json.loads(done.stdout)["files"]
    assert (file["built"], os.path.dirname(file["kept_at"])) == (True, str(own_cache))


def test_a_tar_replaced_by_another_of_the_same_size_and_time(make_tar):
    path = make_tar("a.tar", MEMBERS)
    index_file(str(path), cache=None)
    before = path.stat()
    make_tar("a.tar", {name.replace("x/3", "y/4"): content for name, content in MEMBERS.items()})
    os.utime(path, ns=(before.st_mtime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert index_file(str(path), cache=None).built
    assert data.open(path).keys[2] == "y/4"


@pytest.mark.long
def test_two_processes_index_one_tar_at_once(make_tar, tmp_path):
    path = make_tar("a.tar", ((f"{number:06}.jpg", b"x") for number in range(20_000)))
    source = "import sys; from headrace.tools.command_line import main; sys.argv[0] = 'headrace'; main()"
    runs = [start_python(source, "index", path, "--json", "-") for _ in range(2)]
    said = [finish(run) for run in runs]
    assert [code for code, _, _ in said] == [0, 0], said
    assert {json.loads(out)["files"][0]["members"] for _, out, _ in said} == {20_000}
    assert names(tmp_path) == ["a.tar", "a.tar.headrace"]
    assert not index_file(str(path), cache=None).built


def kill_and_go_on(folder: Path, kill: object) -> None:
    """`kill` ends a run of two threads over three tars; then each index is there whole, or not at all."""
    paths = sorted(map(str, folder.glob("*.tar")))
    for path in folder.glob("*.headrace*"):
        path.unlink()
    kill(lambda: build_indices(paths, cache=None, threads=2))
    for path in folder.glob("*.headrace"):
        assert path.read_bytes() == (folder / "whole" / path.name).read_bytes()
    left = {name for name in names(folder) if name.endswith(file_writing.PARTIAL_SUFFIX)}
    assert left <= {f"{os.path.basename(path)}.headrace.partial" for path in paths}
    outcomes = build_indices(paths, cache=None, threads=2)
    assert [outcome.members for outcome in outcomes] == [3_000] * 3
    assert names(folder) == sorted([*map(os.path.basename, [*paths, *(f"{path}.headrace" for path in paths)]), "whole"])
    for path in folder.glob("*.headrace"):
        assert path.read_bytes() == (folder / "whole" / path.name).read_bytes()


@pytest.fixture
def three_tars(make_tar, tmp_path):
    """Tars, and the indices that they should have."""
    paths = [make_tar(f"{n}.tar", ((f"{n}-{i:06}.jpg", b"x") for i in range(3_000))) for n in range(3)]
    (tmp_path / "whole").mkdir()
    for path in paths:
        index_file(str(path), cache=None)
        Path(f"{path}.headrace").rename(tmp_path / "whole" / f"{path.name}.headrace")
    return tmp_path


def kill_again_and_again(folder: Path, moments: int) -> None:
    paths = sorted(map(str, folder.glob("*.tar")))
    calls = count_calls(lambda: build_indices(paths, cache=None, threads=2))
    rng = random.Random(moments)
    for _ in range(moments):
        at = rng.randrange(1, calls)
        kill_and_go_on(folder, lambda work, at=at: is_killed_at_call(work, at))


@pytest.mark.long
def test_killed_at_a_few_calls(three_tars):
    kill_again_and_again(three_tars, MOMENTS)


@pytest.mark.long
def test_killed_at_many_calls(three_tars):
    kill_again_and_again(three_tars, MOMENTS_LONG)


@pytest.mark.long
def test_killed_at_any_moment(three_tars):
    paths = sorted(map(str, three_tars.glob("*.tar")))
    begin = time.perf_counter()
    build_indices(paths, cache=None, threads=2)
    took_s = time.perf_counter() - begin
    rng = random.Random(0)
    for _ in range(MOMENTS_LONG):
        kill_and_go_on(three_tars, lambda work: is_killed_within(work, took_s, rng))


@pytest.mark.long
def test_ctrl_c_leaves_nothing(make_tar, tmp_path):
    source = """
        import sys, time
        from headrace.data.archives import tar_index
        def build(path):
            print("scanning", flush=True)
            while True:
                time.sleep(0.05)
        tar_index.build_tar_index = build
        from headrace.tools.command_line import main
        sys.argv[0] = "headrace"
        main()
    """
    code, _, said = interrupt_when_ready(source, "index", make_tar("a.tar", MEMBERS))
    assert code != 0
    assert "Traceback" not in said
    assert names(tmp_path) == ["a.tar"]


def test_the_command_says_for_each(make_tar, tmp_path):
    make_tar("a.tar", MEMBERS)
    write_zip(tmp_path / "b.zip")
    index_file(str(tmp_path / "b.zip"), cache=None)
    result = call(tmp_path)
    assert result.exit_code == 0, result.output
    tar, kept, total = result.stdout.splitlines()
    assert tar.startswith(f"{tmp_path}/a.tar: built in 0.0")
    assert tar.endswith(f" members/s), 4 members, 3 samples, 10.2 kB: {tmp_path}/a.tar.headrace")
    assert kept.startswith(f"{tmp_path}/b.zip: already there, 4 members, ")
    assert total.startswith("2 files: 1 built, 1 already there, 0 failed; 8 members, ")


def test_the_command_ends_with_an_error_where_one_could_not_be_indexed(make_tar, tmp_path):
    make_tar("a.tar", MEMBERS)
    (tmp_path / "bad.tar").write_bytes(b"no tar at all" * 100)
    with tarfile.open(tmp_path / "packed.tar", "w:gz") as packed:
        packed.addfile(tarfile.TarInfo("a"))
    result = call(tmp_path, "--json", "-")
    assert result.exit_code == 1
    assert isinstance(result.exception, HeadraceError)
    assert str(result.exception).startswith("2 of 3 files could not be indexed: ")
    files = json.loads(result.stdout)["files"]
    assert [set(file) for file in files] == [
        set(IndexedFile.__dataclass_fields__),
        {"path", "error"},
        {"path", "error"},
    ]
    assert "compressed with gzip" in files[2]["error"]


@pytest.mark.parametrize("arguments", [[], ["a.tar", "--threads", "0"]])
def test_wrong_use_is_exit_code_2(arguments):
    assert call(*arguments).exit_code == 2


def test_one_scan_serves_samples_and_members(make_tar, monkeypatch):
    scans = []
    build = tar_index.build_tar_index

    def counted(path: str) -> object:
        scans.append(path)
        return build(path)

    monkeypatch.setattr(tar_index, "build_tar_index", counted)
    index_file(str(make_tar("a.tar", MEMBERS)), cache=None)
    assert len(scans) == 1
