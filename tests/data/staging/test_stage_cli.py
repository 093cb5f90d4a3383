"""`headrace stage` and `headrace unstage`."""

from __future__ import annotations

import json
import re

import pytest
from staged_trees import copies, expected
from typer.testing import CliRunner

from headrace.errors import HeadraceError
from headrace.tools.command_line import app


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_there_and_back(source, to, tmp_path):
    figures = tmp_path / "figures.json"
    said = run("stage", source, to, "--json", figures).splitlines()
    total = len([entry for entry in expected(source).values() if entry[0] != "folder"])
    assert re.fullmatch(rf"{total} files of [\d.]+ kB copied and read back in [\d.]+ s, .*/s", said[0])
    assert said[1:] == ["not copied: 1 broken links and special files", f"→ {to}/source"]
    assert json.loads(figures.read_text())["copied"] == total
    assert copies(to) == expected(source)
    (to / "source" / "large").write_bytes(b"broken")
    said = run("stage", source, to, "--verify", "--reserve", "1MB").splitlines()
    assert said[1:4] == [
        f"{total - 1} files were there already, with the size and time of their sources",
        f"{total - 1} of them read again: each has the bytes of its source",
        "1 copies had changed since they were staged, and were made anew: source/large",
    ]
    assert re.fullmatch(rf"{total} files of [\d.]+ kB removed from {re.escape(str(to))}\n", run("unstage", to))
    assert not to.exists()


def test_what_is_left_is_an_error(source, to):
    run("stage", source, to)
    (to / "source" / "large").write_bytes(b"notes")
    with pytest.raises(HeadraceError, match=r"1 files were left\. Remove them, too: --force"):
        run("unstage", to)
    run("unstage", to, "--force")
    assert not to.exists()


def test_a_reserve_that_is_no_size(source, to):
    with pytest.raises(HeadraceError, match="--reserve: expected a size above 0 in 'much'"):
        run("stage", source, to, "--reserve", "much")
    assert not to.exists()
