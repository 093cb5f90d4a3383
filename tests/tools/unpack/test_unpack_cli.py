"""`headrace unpack`: what it says, and what it ends with."""

from __future__ import annotations

import json

import pytest
from made_archives import file, ordinary, special, write_tar, write_zip
from rich.filesize import decimal
from typer.testing import CliRunner, Result
from unpacked_trees import names, tree

from headrace.errors import UnsafeMemberError, WriteError
from headrace.tools.command_line import app
from headrace.tools.unpack import unpack


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["unpack", *map(str, arguments)])


def test_it_unpacks_and_says_so(tmp_path, target):
    path = write_tar(tmp_path / "a.tar", ordinary())
    result = call(path, "--to", target, "--verify", "--threads", 2)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    size = decimal(sum(len(content) for _, content in ordinary()))
    assert lines[0].startswith(f"40 files of {size} unpacked into {target} in ")
    assert lines[0].endswith("/s")
    assert lines[1:] == ["3 links", "40 files read again: each has the bytes of its archive"]
    unpack([path], to=tmp_path / "expected")
    assert tree(target) == tree(tmp_path / "expected")
    again = call(path, "--to", target).stdout.splitlines()
    assert again[0].startswith(f"0 files of 0 bytes unpacked into {target} in ")
    assert again[1] == "40 files were there already, with the same size and time"


def test_what_is_not_as_expected_is_told(tmp_path, target):
    members = [file("a", b"1"), file("./a", b"2"), special("pipe", b"6"), file("../b", b"3")]
    path = write_tar(tmp_path / "a.tar", members)
    result = call(path, "--to", target, "--skip-refused")
    assert result.stdout.splitlines()[1:] == [
        f"{path}: left out 2 members: 'pipe' (it is neither a file nor a folder nor a link), "
        f"'../b' (its name holds '..')",
        f"{path}: 1 members gave way to later ones of the same path: 'a'",
    ]


def test_json_alone_on_standard_output(tmp_path, target):
    path = write_tar(tmp_path / "a.tar", [file("a", b"12"), special("pipe", b"6")])
    result = call(path, "--to", target, "--skip-refused", "--verify", "--json", "-")
    document = json.loads(result.stdout)
    (archive,) = document["archives"]
    assert 0 < archive.pop("made_s") < archive.pop("wall_s")
    assert document["to"] == str(target)
    assert archive == {
        "archive": str(path),
        "files": 1,
        "made": 1,
        "made_bytes": 2,
        "kept": 0,
        "kept_bytes": 0,
        "verified": 1,
        "folders": 0,
        "links": 0,
        "replaced": [],
        "refused": [{"name": "pipe", "why": "it is neither a file nor a folder nor a link"}],
    }


def test_patterns_and_several_archives(tmp_path, target):
    for number in range(3):
        write_tar(tmp_path / f"part-{number}.tar", [file(f"{number}", b"x")])
    write_zip(tmp_path / "z.zip", [("z", b"x")])
    assert call(tmp_path / "part-{0..1}.tar", tmp_path / "*-2.tar", tmp_path / "z.zip", "--to", target).exit_code == 0
    assert names(target) == ["0", "1", "2", "z"]


@pytest.mark.parametrize(
    ("members", "options", "error"),
    [([file("../a", b"x")], [], UnsafeMemberError), ([file("there", b"x")], [], WriteError)],
)
def test_an_error_ends_with_one(tmp_path, target, members, options, error):
    target.mkdir()
    (target / "there").write_bytes(b"other")
    result = call(write_tar(tmp_path / "a.tar", members), "--to", target, *options)
    assert result.exit_code == 1
    assert isinstance(result.exception, error)


def test_overwrite(tmp_path, target):
    target.mkdir()
    (target / "a").write_bytes(b"other")
    assert call(write_tar(tmp_path / "a.tar", [file("a", b"x")]), "--to", target, "--overwrite").exit_code == 0
    assert (target / "a").read_bytes() == b"x"


@pytest.mark.parametrize("arguments", [[], ["a.tar", "--threads", "0"], ["a.tar", "--no-such-option"]])
def test_wrong_use_is_exit_code_2(arguments):
    assert call(*arguments).exit_code == 2
